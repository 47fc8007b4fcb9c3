// SPDX-License-Identifier: Apache-2.0
//
// A plane: the K or V rows of one KV head, as sealed records and a few exact 16-bit tiles.
// Layout of its memory here, life of its tiles in plane.cc. All state lives in the block itself, so
// that zero bytes are an empty plane and a copy of the bytes is a copy of the cache.
#ifndef KVARN_CACHE_PLANE_H_
#define KVARN_CACHE_PLANE_H_

#include <cstddef>
#include <cstdint>

#include "format/record_layout.h"
#include "kvarn/kvarn.h"

namespace kvarn {

enum class TileState : uint16_t { kEmpty = 0, kOpen = 1, kSealed = 2 };

// One bit a row of a tile.
struct RowBits {
  uint64_t word[2];

  constexpr bool Get(int row) const { return ((word[row / 64] >> (row % 64)) & 1U) != 0; }
  constexpr void Set(int row) { word[row / 64] |= uint64_t{1} << (row % 64); }
  constexpr void Clear(int row) { word[row / 64] &= ~(uint64_t{1} << (row % 64)); }
  bool operator==(const RowBits& other) const = default;
};

struct TileEntry {
  TileState state;
  uint16_t slot;  // of an open tile
  uint32_t reserved;
  RowBits written;
};
static_assert(sizeof(TileEntry) == 24);

struct SlotEntry {
  uint64_t stamp;  // of the last write; 0 = free
  int64_t tile;
  RowBits fresh;  // rows written since the slot was taken; the others came out of a record
};
static_assert(sizeof(SlotEntry) == 32);

struct PlaneHeader {
  uint64_t stamp;  // counts writes
  uint64_t seals;
  uint64_t reopens;
  kvarn_counts counts;
  uint64_t query_owner;  // 1 + the tile whose query statistics are kept, 0 = none
  RowBits query_rows;    // rows of it that have them
};
static_assert(sizeof(PlaneHeader) == 64);

}  // namespace kvarn

// The C ABI's opaque type: an immutable description of planes of one shape.
struct kvarn_plane {
  kvarn_plane_config config;
  kvarn::RecordLayout record;
  int64_t n_tiles;
  int n_slots;
  size_t tiles;    // TileEntry [n_tiles]
  size_t slots;    // SlotEntry [n_slots]
  size_t queries;  // balanced K: fp16 [G][D], rms over query heads
  size_t exact;    // fp16 [n_slots][G][D]
  size_t records;  // [n_tiles - sink_tiles] of record.bytes
  size_t bytes;

  int Group() const { return config.format.group; }
  int HeadDim() const { return config.format.head_dim; }

  kvarn::PlaneHeader& Header(void* memory) const {
    return *static_cast<kvarn::PlaneHeader*>(memory);
  }
  kvarn::TileEntry* Tiles(void* memory) const {
    return reinterpret_cast<kvarn::TileEntry*>(static_cast<uint8_t*>(memory) + tiles);
  }
  const kvarn::TileEntry* Tiles(const void* memory) const {
    return reinterpret_cast<const kvarn::TileEntry*>(static_cast<const uint8_t*>(memory) + tiles);
  }
  kvarn::SlotEntry* Slots(void* memory) const {
    return reinterpret_cast<kvarn::SlotEntry*>(static_cast<uint8_t*>(memory) + slots);
  }
  const kvarn::SlotEntry* Slots(const void* memory) const {
    return reinterpret_cast<const kvarn::SlotEntry*>(static_cast<const uint8_t*>(memory) + slots);
  }
  // fp16 [G][D] of a slot.
  const uint16_t* ExactTile(const void* memory, int slot) const {
    const size_t size = static_cast<size_t>(Group()) * static_cast<size_t>(HeadDim());
    return reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(memory) + exact) +
           static_cast<size_t>(slot) * size;
  }
  // Sinks never become records and have no room for one: tile >= sink_tiles.
  const uint8_t* Record(const void* memory, int64_t tile) const {
    return static_cast<const uint8_t*>(memory) + records +
           static_cast<size_t>(tile - config.sink_tiles) * record.bytes;
  }
};

namespace kvarn {

kvarn_status MakePlane(const kvarn_plane_config& config, kvarn_plane* plane);

struct RecentHeader;

// `recent` may be null; else tiles that this write seals are kept in it, with `index`.
kvarn_status WriteRow(const kvarn_plane& plane, void* memory, int64_t row, const float* x,
                      const float* query, int n_query, size_t query_stride, RecentHeader* recent,
                      int64_t index);
kvarn_status ReadRows(const kvarn_plane& plane, const void* memory, int64_t row, int64_t n,
                      uint16_t* out, size_t out_stride);
void ResetPlane(const kvarn_plane& plane, void* memory);
kvarn_plane_stats PlaneStats(const kvarn_plane& plane, const void* memory);
uint64_t PlaneLife(const kvarn_plane& plane, const void* memory);  // plane_life.cc

}  // namespace kvarn
#endif  // KVARN_CACHE_PLANE_H_
