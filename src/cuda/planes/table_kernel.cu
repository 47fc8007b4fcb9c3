// SPDX-License-Identifier: Apache-2.0
//
// Where the tiles of planes lie, as attention wants it: from the tables of the first KV head of
// each stream, which all heads and both of K and V share.
#include <cuda_runtime.h>

#include "cuda/planes/table.h"

namespace kvarn::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) TableKernel(const __grid_constant__ TileTableParams p) {
  const auto tile = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const auto stream = static_cast<int>(blockIdx.y);
  if (tile == 0) p.lengths[stream] = p.n_rows;
  if (tile >= p.n_tiles) return;
  const TileEntry& entry =
      reinterpret_cast<const TileEntry*>(p.entries + stream * p.stream_stride)[tile];
  int place = KVARN_CUDA_TILE_EMPTY;
  if (entry.state == TileState::kSealed) place = KVARN_CUDA_TILE_RECORD;
  if (entry.state == TileState::kOpen) place = entry.slot * p.group;
  if (p.places != nullptr) {
    const int copy = p.places[static_cast<int64_t>(stream) * p.places_stride + tile];
    if (copy >= 0) place = KVARN_CUDA_TILE_CHUNK + copy * p.group;
  }
  p.table[stream * p.n_tiles + tile] = place;
}

}  // namespace

void LaunchTileTable(const TileTableParams& params, int n_streams, void* stream) {
  const dim3 grid(static_cast<unsigned>((params.n_tiles + kThreads - 1) / kThreads),
                  static_cast<unsigned>(n_streams));
  TableKernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(params);
}

}  // namespace kvarn::cuda
