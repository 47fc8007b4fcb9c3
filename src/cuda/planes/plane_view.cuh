// SPDX-License-Identifier: Apache-2.0
//
// A plane in device memory and the rows of a call for it, as a CTA sees them.
#pragma once

#include "cache/tile_life.h"
#include "cuda/planes/params.h"

namespace kvarn::cuda {

struct DevicePlane {
  const PlaneWriteParams& p;
  int stream, head;
  uint8_t* memory;

  __device__ DevicePlane(const PlaneWriteParams& params, int index)
      : p(params),
        stream(index / params.n_kv_heads),
        head(index % params.n_kv_heads),
        memory(params.planes + index * params.plane_stride) {}

  __device__ PlaneHeader& Header() const { return *reinterpret_cast<PlaneHeader*>(memory); }
  __device__ TileEntry* Tiles() const { return reinterpret_cast<TileEntry*>(memory + p.tiles_at); }
  __device__ SlotEntry* Slots() const { return reinterpret_cast<SlotEntry*>(memory + p.slots_at); }
  __device__ uint16_t* QueryRow(int position) const {
    return reinterpret_cast<uint16_t*>(memory + p.queries_at) + position * p.encode.head_dim;
  }
  __device__ uint16_t* ExactTile(int slot) const {
    return reinterpret_cast<uint16_t*>(memory + p.exact_at) +
           static_cast<int64_t>(slot) * p.encode.group * p.encode.head_dim;
  }
  __device__ uint8_t* Record(int64_t tile) const {
    return memory + p.records_at + (tile - p.sink_tiles) * p.encode.layout.bytes;
  }
  __device__ uint8_t* Balance(int64_t tile) const { return Record(tile) + p.encode.layout.balance; }

  // Where row `index` of the call belongs in this stream; -1: behind the last, or not of it.
  __device__ int64_t PlaceOfCallRow(int index) const {
    const int64_t row = index < p.n_writes ? p.rows[index] - stream * p.n_rows : int64_t{-1};
    return row < p.n_rows ? max(row, int64_t{-1}) : -1;
  }
  __device__ const float* CallRow(int index) const {
    return reinterpret_cast<const float*>(p.x + index * p.x_row_stride + head * p.x_head_stride);
  }
  // Of query head h of the KV head.
  __device__ const float* QueryOfCall(int index, int h) const {
    return reinterpret_cast<const float*>(p.query + index * p.query_row_stride +
                                          (static_cast<int64_t>(head) * p.heads_per_kv + h) *
                                              p.query_head_stride);
  }

  // What the call leaves to the second kernel.
  __device__ PlaneJob* Jobs() const {
    return p.jobs == nullptr ? nullptr : p.jobs + Index() * p.n_jobs;
  }
  __device__ TakenRows& Taken() const { return p.taken[Index()]; }
  __device__ CallRows* SlotRows() const { return p.slot_rows + Index() * p.n_slots; }

 private:
  __device__ int64_t Index() const { return static_cast<int64_t>(stream) * p.n_kv_heads + head; }
};

}  // namespace kvarn::cuda
