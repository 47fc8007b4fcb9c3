// SPDX-License-Identifier: Apache-2.0
//
// A plane in device memory, as its CTA sees it.
#pragma once

#include "cache/tile_life.h"
#include "cuda/planes/params.h"

namespace kvarn::cuda {

struct DevicePlane {
  const PlaneWriteParams& p;
  uint8_t* memory;

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
  __device__ TileLife Life() const {
    return {p.n_rows, p.encode.group, p.tail_rows, p.sink_tiles, p.n_slots, Tiles(), Slots()};
  }
};

}  // namespace kvarn::cuda
