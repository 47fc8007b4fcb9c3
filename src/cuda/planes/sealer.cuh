// SPDX-License-Identifier: Apache-2.0
//
// Seals tiles: decides about the balance at once, since later tiles take it over, and encodes at
// once or leaves that to the second kernel, which has a CTA for each tile.
#pragma once

#include "cuda/planes/tile_rows.cuh"
#include "cuda/planes/writer_state.cuh"

namespace kvarn::cuda {

// Apart, so that it is compiled once.
template <bool kKey, int kColumns>
__device__ __noinline__ void EncodeHere(DevicePlane plane, const PlaneJob& job, int8_t* balance,
                                        EncodeShared<kColumns>* shared) {
  EncodeJob<kKey, kColumns>(plane, job, balance, shared);
}

template <bool kKey, int kColumns>
class TileSealer {
 public:
  __device__ TileSealer(const DevicePlane& plane, EncodeShared<kColumns>* encode,
                        WriterState* writer)
      : plane_(plane), p_(plane.p), encode_(encode), writer_(*writer), s_(writer->seal) {}

  // Part of the writer's start; a barrier has to follow.
  __device__ void Start() {
    if (plane_.Jobs() != nullptr) {
      for (int i = static_cast<int>(threadIdx.x); i < p_.n_jobs; i += kEncodeThreads) {
        plane_.Jobs()[i].written = {};
      }
    }
    if (!First()) return;
    s_.balance_of = -1;
    s_.slot_jobs = 0;
    s_.n_call_jobs = 0;
  }

  __device__ TileLife Life() const {
    return {p_.n_rows,  p_.encode.group, p_.tail_rows, p_.sink_tiles,
            p_.n_slots, plane_.Tiles(),  writer_.slots};
  }

  // The tile of a slot, which becomes free. All threads, as for all that follow.
  __device__ void Seal(int slot) {
    if (First()) Describe(slot);
    __syncthreads();
    if constexpr (kKey) PlaceBalance();
    if (!s_.waits) EncodeHere<kKey, kColumns>(plane_, s_.job, s_.balance, encode_);
    __syncthreads();
  }

  // Does a job that waits, because something that it reads or writes is needed.
  __device__ void DoNow(int index) {
    const PlaneJob job = plane_.Jobs()[index];
    __syncthreads();
    EncodeHere<kKey, kColumns>(plane_, job, s_.balance, encode_);
    if (First()) {
      plane_.Jobs()[index].written = {};
      if (index < p_.n_slots) s_.slot_jobs &= ~(uint64_t{1} << index);
      s_.balance_of = job.tile;
    }
    __syncthreads();
  }
  // Makes sure that no job that waits reads the memory of a slot.
  __device__ void ReleaseMemory(int slot) {
    if ((s_.slot_jobs >> slot & 1U) != 0) DoNow(slot);
  }

  // Thread 0: the job of a tile that waits, or -1.
  __device__ int Waiting(int64_t tile) const {
    if ((s_.slot_jobs == 0 && s_.n_call_jobs == 0) || tile < s_.lowest || tile > s_.highest) {
      return -1;
    }
    for (int i = 0; i < p_.n_slots + s_.n_call_jobs; ++i) {
      const PlaneJob& job = plane_.Jobs()[i];
      if (!(job.written == RowBits{}) && job.tile == tile) return i;
    }
    return -1;
  }

 private:
  __device__ static bool First() { return threadIdx.x == 0; }

  __device__ void Describe(int slot) {
    SlotEntry& taken = writer_.slots[slot];
    TileEntry& entry = plane_.Tiles()[taken.tile];
    PlaneHeader& header = writer_.header;
    s_.job = {taken.tile, entry.written, slot, writer_.rows[slot]};
    if constexpr (kKey) ChooseBalance(taken.tile, !(taken.fresh == entry.written));
    s_.waits = Leave(s_.job);
    writer_.rows[slot].counted = true;  // by the encoder
    header.seals += 1;
    if (header.query_owner == static_cast<uint64_t>(taken.tile) + 1) header.query_owner = 0;
    entry.state = TileState::kSealed;
    entry.slot = 0;
    taken = {};
  }

  // To the second kernel, if there is one and it has room.
  __device__ bool Leave(const PlaneJob& job) {
    if (plane_.Jobs() == nullptr) return false;
    int index = job.slot;
    if (job.rows.alone) {
      if (p_.n_slots + s_.n_call_jobs == p_.n_jobs) return false;
      index = p_.n_slots + s_.n_call_jobs;
    }
    const bool first = s_.slot_jobs == 0 && s_.n_call_jobs == 0;
    s_.lowest = first ? job.tile : min(s_.lowest, job.tile);
    s_.highest = first ? job.tile : max(s_.highest, job.tile);
    if (job.rows.alone) {
      s_.n_call_jobs += 1;
    } else {
      s_.slot_jobs |= uint64_t{1} << index;
    }
    plane_.Jobs()[index] = job;
    return true;
  }

  // docs/architecture.md section 4, rule 6.
  __device__ void ChooseBalance(int64_t tile, bool survivors) {
    const int64_t before = SealedBefore(Life(), tile);
    s_.computes_balance = before < 0 && !survivors;
    if (s_.computes_balance) {
      s_.knows_queries = writer_.header.query_owner == static_cast<uint64_t>(tile) + 1;
      s_.n_rows = 0;
      for (int g = 0; g < p_.encode.group; ++g) {
        if (s_.job.written.Get(g)) s_.position[s_.n_rows++] = static_cast<uint8_t>(g);
      }
    }
    const int64_t from = before >= 0 ? before : tile;
    s_.balance_from = from == s_.balance_of ? -1 : from;
    s_.balance_of = tile;
  }

  // Into the record; thread d has channel d.
  __device__ void PlaceBalance() {
    const auto d = static_cast<int>(threadIdx.x);
    const bool mine = d < p_.encode.head_dim;
    if (s_.computes_balance) {
      const int eighths = ComputeBalance();
      if (mine) s_.balance[d] = static_cast<int8_t>(eighths);
    } else if (s_.balance_from >= 0 && mine) {
      s_.balance[d] = static_cast<int8_t>(plane_.Balance(s_.balance_from)[d]);
    }
    if (mine) plane_.Balance(s_.job.tile)[d] = static_cast<uint8_t>(s_.balance[d]);
  }

  __device__ int ComputeBalance() {
    const OpenTileRows rows(plane_, s_.job.slot, s_.job.rows);
    return BalanceOf(
        s_.n_rows, p_.encode.head_dim, s_.knows_queries,
        [&](int i, int d) {
          const float x = rows.Load(rows.At(s_.position[i]), d);
          return isfinite(x) ? RoundToHalf(x) : x;
        },
        [&](int i, int d) {
          const int g = s_.position[i];
          return writer_.header.query_rows.Get(g) ? FromHalf(plane_.QueryRow(g)[d]) : NAN;
        },
        &s_.balance_shared);
  }

  const DevicePlane& plane_;
  const PlaneWriteParams& p_;
  EncodeShared<kColumns>* encode_;
  WriterState& writer_;
  SealState& s_;
};

}  // namespace kvarn::cuda
