// SPDX-License-Identifier: Apache-2.0
//
// The decisions of a tile's life (docs/architecture.md section 4), from a plane's tables alone: the
// same for planes in host memory (plane.cc) and on a device.
#ifndef KVARN_CACHE_TILE_LIFE_H_
#define KVARN_CACHE_TILE_LIFE_H_

#include <cstdint>

#include "cache/plane.h"

#if defined(__CUDACC__)
#define KVARN_ANYWHERE __host__ __device__ inline
#else
#define KVARN_ANYWHERE inline
#endif

namespace kvarn {

struct TileLife {
  int64_t n_rows;
  int group;
  int tail_rows;
  int sink_tiles;
  int n_slots;
  const TileEntry* tiles;
  const SlotEntry* slots;
};

KVARN_ANYWHERE int CountBits(uint64_t word) {
#if defined(__CUDA_ARCH__)
  return __popcll(word);
#else
  return __builtin_popcountll(word);
#endif
}
KVARN_ANYWHERE int CountRows(const RowBits& rows) {
  return CountBits(rows.word[0]) + CountBits(rows.word[1]);
}

KVARN_ANYWHERE bool IsSink(const TileLife& life, int64_t tile) { return tile < life.sink_tiles; }

// `written` is every row of the tile; the last tile may be shorter.
KVARN_ANYWHERE bool IsFull(const TileLife& life, int64_t tile, const RowBits& written) {
  const int64_t left = life.n_rows - tile * life.group;
  return CountRows(written) == (left < life.group ? left : life.group);
}

// A sealed tile whose balance can be trusted: from a quarter of its rows at least.
KVARN_ANYWHERE bool GivesBalance(const TileLife& life, const TileEntry& entry) {
  return entry.state == TileState::kSealed && CountRows(entry.written) >= life.group / 4;
}

// The nearest tile before this one that gives its balance, or -1.
KVARN_ANYWHERE int64_t SealedBefore(const TileLife& life, int64_t tile) {
  for (int64_t i = tile - 1; i >= life.sink_tiles; --i) {
    if (GivesBalance(life, life.tiles[i])) return i;
  }
  return -1;
}

// A slot for a tile that is opened: a free one, else that of the tile that was written longest ago,
// full or not (tiles that earlier requests left partial go before the exact tail of the present
// one), which has to be sealed first. -1 if only sinks have slots.
struct TakenSlot {
  int slot;
  bool free;
};
KVARN_ANYWHERE TakenSlot SlotToTake(const TileLife& life) {
  int oldest = -1;
  for (int i = 0; i < life.n_slots; ++i) {
    const SlotEntry& entry = life.slots[i];
    if (entry.stamp == 0) return {i, true};
    if (IsSink(life, entry.tile)) continue;
    if (oldest < 0 || entry.stamp < life.slots[oldest].stamp) oldest = i;
  }
  return {oldest, false};
}

// How many of the n rows from `row` on, all of one tile, are written until the tile of a slot has
// to be sealed if it is full then; 0 if it stays. It is sealed once at least tail_rows rows (and at
// least one) beyond its end are written, counted round the ring. A write just *before* a tile (a
// roll-back) leaves it open.
KVARN_ANYWHERE int DueIfFull(const TileLife& life, const SlotEntry& entry, int64_t row, int n) {
  if (entry.stamp == 0 || IsSink(life, entry.tile)) return 0;
  const int64_t start = entry.tile * life.group;
  const int64_t past = start + life.group;
  if (row >= start && row < past) return 0;
  const int64_t end = past < life.n_rows ? past : life.n_rows;
  const int64_t beyond = row - end + (row < end ? life.n_rows : 0) + 1;
  const int64_t wait = beyond < life.tail_rows ? life.tail_rows - beyond : 0;
  if (wait >= n || beyond + wait > life.n_rows - 2 * life.group) return 0;
  return static_cast<int>(wait) + 1;
}
KVARN_ANYWHERE int DueAfter(const TileLife& life, int slot, int64_t row, int n) {
  const SlotEntry& entry = life.slots[slot];
  const int after = DueIfFull(life, entry, row, n);
  return after != 0 && IsFull(life, entry.tile, life.tiles[entry.tile].written) ? after : 0;
}

// Whether the tile in a slot is sealed now that `row` has been written.
KVARN_ANYWHERE bool IsDue(const TileLife& life, int slot, int64_t row) {
  return DueAfter(life, slot, row, 1) != 0;
}

}  // namespace kvarn
#endif  // KVARN_CACHE_TILE_LIFE_H_
