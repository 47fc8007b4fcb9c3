// SPDX-License-Identifier: Apache-2.0
//
// Life of a tile (docs/architecture.md section 4): EMPTY -> OPEN (a slot of exact rows) -> SEALED
// (a record) -> OPEN again when a row in it is written. Decisions depend on the sequence of rows
// alone.
#include "cache/plane.h"

#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "cache/recent.h"
#include "cache/tile_life.h"
#include "codec/balance.h"
#include "codec/ordered_sum.h"
#include "codec/record.h"
#include "cpu/kernels.h"
#include "format/half.h"

namespace kvarn {
namespace {

// fp32 rows of one tile, kept by each thread so that a seal or a reopen allocates nothing after the
// first. Throws std::bad_alloc.
float* ThreadRows(size_t count) {
  static thread_local std::vector<float> rows;
  if (rows.size() < count) rows.resize(count);
  return rows.data();
}

// The plane's state and the operations on it; lives for one call.
class PlaneView {
 public:
  PlaneView(const kvarn_plane& plane, void* memory, RecentHeader* recent, int64_t index)
      : plane_(plane),
        memory_(static_cast<uint8_t*>(memory)),
        header_(plane.Header(memory)),
        tiles_(plane.Tiles(memory)),
        slots_(plane.Slots(memory)),
        recent_(recent),
        index_(index) {}

  kvarn_status Write(int64_t row, const float* x, const float* query, int n_query,
                     size_t query_stride);

 private:
  uint16_t* ExactTile(int slot) { return const_cast<uint16_t*>(plane_.ExactTile(memory_, slot)); }
  uint8_t* Record(int64_t tile) { return const_cast<uint8_t*>(plane_.Record(memory_, tile)); }
  uint16_t* QueryRow(int pos) {
    return reinterpret_cast<uint16_t*>(memory_ + plane_.queries) +
           static_cast<ptrdiff_t>(pos) * plane_.HeadDim();
  }
  TileLife Life() const {
    return {plane_.config.n_rows,
            plane_.Group(),
            plane_.config.tail_rows,
            plane_.config.sink_tiles,
            plane_.n_slots,
            tiles_,
            slots_};
  }
  kvarn_status Open(int64_t tile);
  kvarn_status TakeSlot(int* slot);
  kvarn_status Seal(int64_t tile);
  kvarn_status SealDue(int64_t row);
  kvarn_status ChooseBalance(int64_t tile, const int32_t* position, int n_rows, int8_t* balance);
  void KeepQuery(int64_t tile, int pos, const float* query, int n_query, size_t query_stride);

  const kvarn_plane& plane_;
  uint8_t* memory_;
  PlaneHeader& header_;
  TileEntry* tiles_;
  SlotEntry* slots_;
  RecentHeader* recent_;  // or null
  int64_t index_;         // of this write within its call
};

kvarn_status PlaneView::TakeSlot(int* slot) {
  const TakenSlot taken = SlotToTake(Life());
  if (taken.slot < 0) return KVARN_ERROR_NO_SLOT;
  *slot = taken.slot;
  return taken.free ? KVARN_OK : Seal(slots_[taken.slot].tile);
}

kvarn_status PlaneView::Open(int64_t tile) {
  int slot = 0;
  kvarn_status status = TakeSlot(&slot);
  if (status != KVARN_OK) return status;
  const size_t size = static_cast<size_t>(plane_.Group()) * static_cast<size_t>(plane_.HeadDim());
  uint16_t* exact = ExactTile(slot);
  TileEntry& entry = tiles_[tile];
  if (entry.state == TileState::kSealed) {
    try {
      float* rows = ThreadRows(size);
      status = DecodeRecord(plane_.config.format, Record(tile), rows);
      if (status != KVARN_OK) return status;
      kvarn_counts ignored = {};
      for (int g = 0; g < plane_.Group(); ++g) {
        float* row = rows + static_cast<ptrdiff_t>(g) * plane_.HeadDim();
        if (!entry.written.Get(g))
          std::memset(row, 0, sizeof(float) * static_cast<size_t>(plane_.HeadDim()));
        SanitiseRow(row, plane_.HeadDim(), row, &ignored);
      }
      ActiveKernels().to_half(rows, exact, static_cast<int>(size));
    } catch (const std::bad_alloc&) {
      return KVARN_ERROR_MEMORY;
    }
    header_.reopens += 1;
  } else {
    std::memset(exact, 0, size * sizeof(uint16_t));
    entry.written = {};
  }
  slots_[slot] = SlotEntry{header_.stamp + 1, tile, {}};
  entry.state = TileState::kOpen;
  entry.slot = static_cast<uint16_t>(slot);
  return KVARN_OK;
}

// s of a tile: that of the nearest sealed tile before it; else the one it had, if rows of its last
// record survive; else from its own rows.
kvarn_status PlaneView::ChooseBalance(int64_t tile, const int32_t* position, int n_rows,
                                      int8_t* balance) {
  const auto dim = static_cast<size_t>(plane_.HeadDim());
  const int64_t before = SealedBefore(Life(), tile);
  const bool survivors = slots_[tiles_[tile].slot].fresh != tiles_[tile].written;
  if (before >= 0 || survivors) {
    const uint8_t* record = Record(before >= 0 ? before : tile);
    std::memcpy(balance, record + plane_.record.balance, dim);
    return KVARN_OK;
  }
  float query_ms[kMaxHeadDim];
  int known[kMaxGroup];
  int n_known = 0;
  if (header_.query_owner == static_cast<uint64_t>(tile) + 1) {
    for (int i = 0; i < n_rows; ++i) {
      if (header_.query_rows.Get(position[i])) known[n_known++] = position[i];
    }
  }
  for (int d = 0; d < plane_.HeadDim() && n_known > 0; ++d) {
    query_ms[d] = TokenSum(n_known,
                           [&](int i) {
                             const float rms = HalfToFloat(QueryRow(known[i])[d]);
                             return rms * rms;
                           }) /
                  static_cast<float>(n_known);
  }
  try {
    float* keys = ThreadRows(static_cast<size_t>(n_rows) * dim);
    const uint16_t* exact = ExactTile(tiles_[tile].slot);
    for (int i = 0; i < n_rows; ++i) {
      ActiveKernels().to_float(exact + static_cast<size_t>(position[i]) * dim,
                               keys + static_cast<size_t>(i) * dim, plane_.HeadDim());
    }
    ComputeBalance(plane_.HeadDim(), keys, plane_.HeadDim(), n_rows,
                   n_known > 0 ? query_ms : nullptr, balance);
  } catch (const std::bad_alloc&) {
    return KVARN_ERROR_MEMORY;
  }
  return KVARN_OK;
}

kvarn_status PlaneView::Seal(int64_t tile) {
  TileEntry& entry = tiles_[tile];
  const int slot = entry.slot;
  int32_t position[kMaxGroup];
  int n_rows = 0;
  for (int g = 0; g < plane_.Group(); ++g) {
    if (entry.written.Get(g)) position[n_rows++] = g;
  }
  int8_t balance[kMaxHeadDim] = {};
  kvarn_status status = KVARN_OK;
  if (plane_.record.has_balance) status = ChooseBalance(tile, position, n_rows, balance);
  if (status != KVARN_OK) return status;
  status =
      EncodeExactTile(plane_.config.format, ExactTile(slot), n_rows, position,
                      plane_.record.has_balance ? balance : nullptr, Record(tile), &header_.counts);
  if (status != KVARN_OK) return status;
  if (recent_ != nullptr) KeepRecent(plane_, recent_, tile, index_, ExactTile(slot));
  slots_[slot] = SlotEntry{};
  entry.state = TileState::kSealed;
  entry.slot = 0;
  header_.seals += 1;
  if (header_.query_owner == static_cast<uint64_t>(tile) + 1) header_.query_owner = 0;
  return KVARN_OK;
}

// Seals every tile that is due once `row` has been written.
kvarn_status PlaneView::SealDue(int64_t row) {
  for (int i = 0; i < plane_.n_slots; ++i) {
    if (!IsDue(Life(), i, row)) continue;
    const kvarn_status status = Seal(slots_[i].tile);
    if (status != KVARN_OK) return status;
  }
  return KVARN_OK;
}

// Query statistics are kept for one tile: the lowest open one that will have to choose s itself.
void PlaneView::KeepQuery(int64_t tile, int pos, const float* query, int n_query,
                          size_t query_stride) {
  if (IsSink(Life(), tile) || SealedBefore(Life(), tile) >= 0) return;
  const auto owner = static_cast<uint64_t>(tile) + 1;
  if (header_.query_owner == 0 || owner < header_.query_owner) {
    header_.query_owner = owner;
    header_.query_rows = {};
  }
  if (header_.query_owner != owner) return;
  header_.query_rows.Clear(pos);
  if (query == nullptr || n_query <= 0) return;
  const int dim = plane_.HeadDim();
  float rms[kMaxHeadDim];
  for (int d = 0; d < dim; ++d) {
    const float squares = ChannelSum(n_query, [&](int h) {
      float q = 0;
      std::memcpy(
          &q, reinterpret_cast<const uint8_t*>(query + d) + static_cast<size_t>(h) * query_stride,
          sizeof(q));
      return q * q;
    });
    rms[d] = std::sqrt(squares / static_cast<float>(n_query));
    if (!(rms[d] <= kHalfMax)) return;  // NaN or out of range: as if not known
  }
  ActiveKernels().to_half(rms, QueryRow(pos), dim);
  header_.query_rows.Set(pos);
}

kvarn_status PlaneView::Write(int64_t row, const float* x, const float* query, int n_query,
                              size_t query_stride) {
  const int64_t tile = row / plane_.Group();
  const int pos = static_cast<int>(row % plane_.Group());
  if (tiles_[tile].state != TileState::kOpen) {
    const kvarn_status status = Open(tile);
    if (status != KVARN_OK) return status;
  }
  const int dim = plane_.HeadDim();
  TileEntry& entry = tiles_[tile];
  SlotEntry& slot = slots_[entry.slot];
  float clean[kMaxHeadDim];
  SanitiseRow(x, dim, clean, &header_.counts);
  ActiveKernels().to_half(clean, ExactTile(entry.slot) + static_cast<ptrdiff_t>(pos) * dim, dim);
  entry.written.Set(pos);
  slot.fresh.Set(pos);
  header_.stamp += 1;
  slot.stamp = header_.stamp;
  if (plane_.record.has_balance) KeepQuery(tile, pos, query, n_query, query_stride);
  return SealDue(row);
}

}  // namespace

kvarn_status WriteRow(const kvarn_plane& plane, void* memory, int64_t row, const float* x,
                      const float* query, int n_query, size_t query_stride, RecentHeader* recent,
                      int64_t index) {
  return PlaneView(plane, memory, recent, index).Write(row, x, query, n_query, query_stride);
}

kvarn_status ReadRows(const kvarn_plane& plane, const void* memory, int64_t row, int64_t n,
                      uint16_t* out, size_t out_stride) {
  const int64_t group = plane.Group();
  const auto dim = static_cast<size_t>(plane.HeadDim());
  const TileEntry* tiles = plane.Tiles(memory);
  try {
    float* decoded = nullptr;
    int64_t decoded_tile = -1;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t tile = (row + i) / group;
      const auto pos = static_cast<int>((row + i) % group);
      auto* to = reinterpret_cast<uint16_t*>(reinterpret_cast<uint8_t*>(out) +
                                             static_cast<size_t>(i) * out_stride);
      const TileEntry& entry = tiles[tile];
      if (entry.state == TileState::kEmpty || !entry.written.Get(pos)) {
        std::memset(to, 0, dim * sizeof(uint16_t));
      } else if (entry.state == TileState::kOpen) {
        std::memcpy(to, plane.ExactTile(memory, entry.slot) + static_cast<size_t>(pos) * dim,
                    dim * sizeof(uint16_t));
      } else {
        if (decoded_tile != tile) {
          decoded = ThreadRows(static_cast<size_t>(group) * dim);
          const kvarn_status status =
              DecodeRecord(plane.config.format, plane.Record(memory, tile), decoded);
          if (status != KVARN_OK) return status;
          decoded_tile = tile;
        }
        float* from = decoded + static_cast<size_t>(pos) * dim;
        SanitiseRow(from, plane.HeadDim(), from, nullptr);
        ActiveKernels().to_half(from, to, plane.HeadDim());
      }
    }
  } catch (const std::bad_alloc&) {
    return KVARN_ERROR_MEMORY;
  }
  return KVARN_OK;
}

// Tables decide what the rest means, so clearing them is enough.
void ResetPlane(const kvarn_plane& plane, void* memory) { std::memset(memory, 0, plane.queries); }

kvarn_plane_stats PlaneStats(const kvarn_plane& plane, const void* memory) {
  PlaneHeader header;
  std::memcpy(&header, memory, sizeof(header));
  kvarn_plane_stats stats = {};
  stats.rows_written = header.stamp;
  stats.seals = header.seals;
  stats.reopens = header.reopens;
  stats.counts = header.counts;
  const TileEntry* tiles = plane.Tiles(memory);
  for (int64_t i = 0; i < plane.n_tiles; ++i) {
    stats.tiles_open += tiles[i].state == TileState::kOpen ? 1 : 0;
    stats.tiles_sealed += tiles[i].state == TileState::kSealed ? 1 : 0;
  }
  return stats;
}

}  // namespace kvarn
