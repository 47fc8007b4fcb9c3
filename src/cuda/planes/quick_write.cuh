// SPDX-License-Identifier: Apache-2.0
//
// Calls of a few rows that only continue open tiles: 127 of 128 steps of a decoding host. What
// writer.cuh does for them, but decided by whole warps from tables in registers: a chain of two
// loads instead of ten, and none of the encoder's code. The tables can take the rows long before
// these are there (TakenRows): then storing them is all that is left.
#pragma once

#include "cuda/planes/query_row.cuh"
#include "cuda/planes/tile_rows.cuh"

namespace kvarn::cuda {

struct QuickState {
  uint32_t known;  // queries of rows that are written, one bit each
};

// Row `index` of the call for this plane; zeros behind the last.
template <int kColumns>
__device__ __forceinline__ void LoadCallRow(const DevicePlane& plane, int index,
                                            float (&x)[kColumns]) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int d = 32 * c + Lane();
    const bool there = index < plane.p.n_writes && d < plane.p.encode.head_dim;
    x[c] = there ? plane.CallRow(index)[d] : 0.0F;
  }
}

// Stores rows that the tables of the plane have taken, a warp a row. False if they have not.
template <bool kKey, int kColumns>
__device__ __forceinline__ bool StoreTaken(const DevicePlane& plane, QuickState* state) {
  const PlaneWriteParams& p = plane.p;
  const TakenRows& taken = plane.Taken();
  const int dim = p.encode.head_dim;
  // All that the first row needs is asked for at once: each would be a wait of its own.
  float x[kColumns];
  LoadCallRow<kColumns>(plane, Warp(), x);
  int place = Warp() < p.n_writes ? taken.places[Warp()] : -1;
  const uint32_t queries = kKey ? taken.queries : 0;
  if (taken.took == 0) return false;
  if (queries != 0) {
    if (threadIdx.x == 0) state->known = 0;
    __syncthreads();
  }
  StoreCounts counts;
  for (int i = Warp(); i < p.n_writes; i += kWarps) {
    if (i != Warp()) {
      LoadCallRow<kColumns>(plane, i, x);
      place = taken.places[i];
    }
    if (place < 0) continue;
    StoreRow<kColumns>(x, dim, plane.ExactTile(0) + static_cast<int64_t>(place) * dim, &counts);
    if ((queries >> i & 1U) == 0) continue;
    const bool known = KeepQuery<kColumns>(plane, i, place % p.encode.group);
    if (known && Lane() == 0) atomicOr(&state->known, 1U << i);
  }
  counts.AddTo(&plane.Header().counts);
  if (queries == 0) return true;
  __syncthreads();
  if (threadIdx.x != 0) return true;
  for (int i = 0; i < p.n_writes; ++i) {
    if ((state->known >> i & 1U) == 0) continue;
    plane.Header().query_rows.Set(taken.places[i] % p.encode.group);
  }
  return true;
}

template <bool kKey, int kColumns>
class QuickWriter {
 public:
  __device__ QuickWriter(const DevicePlane& plane, QuickState* state)
      : plane_(plane), p_(plane.p), s_(*state), life_{p_.n_rows,     p_.encode.group, p_.tail_rows,
                                                      p_.sink_tiles, p_.n_slots,      plane.Tiles(),
                                                      plane.Slots()} {}

  // False, and nothing is written, where a row opens a tile or seals one.
  __device__ bool WriteCall() {
    if (!IsShort()) return false;
    LoadCallRow<kColumns>(plane_, Warp(), x_);
    if (!TakeRows()) return false;
    __syncthreads();  // every warp has read the tables
    Store();
    if (queries_ != 0) __syncthreads();
    if (Warp() == 0) StoreTables();
    return true;
  }

  // By one warp, for StoreTaken. Where rows cannot be taken the tables stay as they are.
  __device__ void TakeCall(TakenRows* taken) {
    const bool took = IsShort() && TakeRows();
    if (took) {
      taken->places[Lane()] = row_ < 0 ? -1 : slot_of_row_ * p_.encode.group + position_;
      __syncwarp();
      StoreTables();
    }
    if (Lane() != 0) return;
    taken->took = took;
    taken->queries = queries_;
  }

 private:
  static constexpr int kWarpLanes = 32;
  static_assert(kMostTakenRows == kWarpLanes);
  static constexpr unsigned kAll = 0xFFFFFFFFU;

  __device__ bool IsShort() const {
    return p_.n_writes <= kMostTakenRows && p_.n_slots <= kWarpLanes;
  }
  __device__ bool TakeRows() {
    Load();
    for (int i = 0; i < p_.n_writes; ++i) {
      if (!Take(i)) return false;
    }
    return true;
  }

  // Lane i takes row i and slot i. Every warp for itself: then all know what all will do.
  __device__ void Load() {
    const int lane = Lane();
    if (threadIdx.x == 0) s_.known = 0;
    row_ = plane_.PlaceOfCallRow(lane);
    if (lane < p_.n_slots) slot_ = plane_.Slots()[lane];
    const PlaneHeader& header = plane_.Header();
    stamp_ = header.stamp;
    query_owner_ = header.query_owner;
    query_rows_ = header.query_rows;
  }

  // Takes row i of the call into the tables.
  __device__ bool Take(int i) {
    const int64_t row = __shfl_sync(kAll, row_, i);
    if (row < 0) return true;
    // The second of two writes of a row has to win.
    if (__ballot_sync(kAll, Lane() > i && row_ == row) != 0) return false;
    const int64_t tile = row / p_.encode.group;
    const auto position = static_cast<int>(row - tile * p_.encode.group);
    const bool mine = slot_.stamp != 0 && slot_.tile == tile;
    const unsigned open = __ballot_sync(kAll, mine);
    if (open == 0) return false;
    const bool may_be_due = DueIfFull(life_, slot_, row, 1) != 0;
    if ((mine || may_be_due) && !changed_) written_ = life_.tiles[slot_.tile].written;
    stamp_ += 1;
    if (mine) {
      written_.Set(position);
      slot_.fresh.Set(position);
      slot_.stamp = stamp_;
      changed_ = true;
    }
    const bool due = may_be_due && IsFull(life_, slot_.tile, written_);
    if (__ballot_sync(kAll, due) != 0) return false;
    if (Lane() == i) {
      slot_of_row_ = __ffs(static_cast<int>(open)) - 1;
      position_ = position;
    }
    return !kKey || TakeQuery(i, tile, position);
  }

  // Whether the row has query statistics (PlaneWriter::OwnsQueries). False if the tile that has
  // them changes after some have been taken.
  __device__ bool TakeQuery(int i, int64_t tile, int position) {
    if (IsSink(life_, tile) || HasBalance(tile)) return true;
    const auto owner = static_cast<uint64_t>(tile) + 1;
    if (query_owner_ == 0 || owner < query_owner_) {
      if (queries_ != 0) return false;
      query_owner_ = owner;
      query_rows_ = {};
    }
    if (query_owner_ != owner) return true;
    query_rows_.Clear(position);
    if (p_.query != nullptr) queries_ |= 1U << i;
    return true;
  }

  // Some tile before this one gives its balance.
  __device__ bool HasBalance(int64_t tile) const {
    for (int64_t last = tile - 1; last >= p_.sink_tiles; last -= kWarpLanes) {
      const int64_t i = last - Lane();
      const bool gives = i >= p_.sink_tiles && GivesBalance(life_, life_.tiles[i]);
      if (__ballot_sync(kAll, gives) != 0) return true;
    }
    return false;
  }

  // A warp a row.
  __device__ void Store() {
    StoreCounts counts;
    for (int i = Warp(); i < p_.n_writes; i += kWarps) {
      if (i != Warp()) LoadCallRow<kColumns>(plane_, i, x_);
      const int64_t row = __shfl_sync(kAll, row_, i);
      const int slot = __shfl_sync(kAll, slot_of_row_, i);
      const int position = __shfl_sync(kAll, position_, i);
      if (row < 0) continue;
      const int dim = p_.encode.head_dim;
      StoreRow<kColumns>(x_, dim, plane_.ExactTile(slot) + position * dim, &counts);
      if constexpr (kKey) {
        if ((queries_ >> i & 1U) == 0) continue;
        const bool known = KeepQuery<kColumns>(plane_, i, position);
        if (known && Lane() == 0) atomicOr(&s_.known, 1U << i);
      }
    }
    counts.AddTo(&plane_.Header().counts);
  }

  __device__ void StoreTables() {
    if (changed_) {
      plane_.Slots()[Lane()] = slot_;
      plane_.Tiles()[slot_.tile].written = written_;
    }
    for (int i = 0; i < p_.n_writes && queries_ != 0; ++i) {
      const int position = __shfl_sync(kAll, position_, i);
      if ((s_.known >> i & 1U) != 0) query_rows_.Set(position);
    }
    if (Lane() != 0) return;
    PlaneHeader& header = plane_.Header();
    header.stamp = stamp_;
    header.query_owner = query_owner_;
    header.query_rows = query_rows_;
  }

  const DevicePlane& plane_;
  const PlaneWriteParams& p_;
  QuickState& s_;
  TileLife life_;
  // Of a lane.
  int64_t row_;  // of the stream, or -1
  int slot_of_row_ = 0;
  int position_ = 0;
  SlotEntry slot_ = {};
  RowBits written_ = {};  // of the slot's tile
  bool changed_ = false;
  float x_[kColumns];
  // The same in all lanes.
  uint64_t stamp_, query_owner_;
  RowBits query_rows_;
  uint32_t queries_ = 0;  // rows that have query statistics, one bit each
};

}  // namespace kvarn::cuda
