// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "cuda/common/launch_kernel.h"
#include "cuda/planes/recent.h"

namespace kvarn::cuda {
namespace {

constexpr int kBeginThreads = 1024;
constexpr int kStreamBits = 1024;
constexpr int kCopyThreads = 256;
constexpr int kCopyRows = 16;  // of a CTA: a few for each warp, so that many are on their way

__device__ const uint8_t* PlaneOf(const RecentParams& p, int part, int stream, int head) {
  const RecentSource& s = p.source[part];
  return s.planes + (static_cast<int64_t>(stream) * p.n_kv_heads + head) * s.plane_stride;
}
__device__ const TileEntry& EntryOf(const RecentParams& p, int part, int stream, int head,
                                    int tile) {
  const uint8_t* plane = PlaneOf(p, part, stream, head);
  return reinterpret_cast<const TileEntry*>(plane + p.source[part].tiles_at)[tile];
}

// One CTA: numbers the tiles that the rows belong to, and those of the same streams that are open
// and no sinks: writing may seal them. Tiles that are sealed now have a copy only if all their rows
// are written anew; others would have to be decoded.
__global__ void __launch_bounds__(kBeginThreads)
    RecentBeginKernel(const __grid_constant__ RecentParams p) {
  const auto thread = static_cast<int>(threadIdx.x);
  const RecentLayout& layout = p.layout;
  auto* places = reinterpret_cast<int32_t*>(p.block + layout.places);
  auto* tiles = reinterpret_cast<int32_t*>(p.block + layout.tiles);
  auto* rows = reinterpret_cast<int32_t*>(p.block + layout.rows);
  __shared__ int n;
  __shared__ unsigned has_rows[kStreamBits / 32];  // one bit a stream, modulo kStreamBits
  const int64_t all = static_cast<int64_t>(layout.n_streams) * layout.n_tiles;
  for (int64_t i = thread; i < all; i += kBeginThreads) places[i] = -1;
  for (int i = thread; i < layout.n_copies; i += kBeginThreads) tiles[i] = -1;
  for (int i = thread; i < layout.n_copies * p.group; i += kBeginThreads) rows[i] = -1;
  if (thread == 0) n = 0;
  if (thread < kStreamBits / 32) has_rows[thread] = 0;
  __syncthreads();
  const auto find = [&](int i, int64_t* row) {
    *row = p.rows[i];
    if (*row < 0 || *row >= layout.n_streams * p.plane_rows) return -1;
    const auto stream = static_cast<int>(*row / p.plane_rows);
    *row -= stream * p.plane_rows;
    return static_cast<int>(stream * layout.n_tiles + *row / p.group);
  };
  const auto number = [&](int tile) {
    if (atomicCAS(&places[tile], -1, -2) != -1) return;
    const int copy = atomicAdd(&n, 1);
    if (copy >= layout.n_copies) return;
    tiles[copy] = tile;
    atomicExch(&places[tile], copy);
  };
  for (int i = thread; i < p.n_rows; i += kBeginThreads) {
    int64_t row = 0;
    const int tile = find(i, &row);
    if (tile < 0) continue;
    const int stream = tile / layout.n_tiles % kStreamBits;
    atomicOr(&has_rows[stream / 32], 1U << (stream % 32));
    number(tile);
  }
  __syncthreads();
  for (int i = thread; i < layout.n_streams * p.n_slots; i += kBeginThreads) {
    const int stream = i / p.n_slots;
    if ((has_rows[stream % kStreamBits / 32] >> (stream % 32) & 1U) == 0) continue;
    const auto* slots =
        reinterpret_cast<const SlotEntry*>(PlaneOf(p, 0, stream, 0) + p.source[0].slots_at);
    const SlotEntry& slot = slots[i % p.n_slots];
    if (slot.stamp != 0 && slot.tile >= p.sink_tiles) {
      number(static_cast<int>(stream * layout.n_tiles + slot.tile));
    }
  }
  __syncthreads();
  for (int i = thread; i < p.n_rows; i += kBeginThreads) {
    int64_t row = 0;
    const int tile = find(i, &row);
    if (tile < 0 || places[tile] < 0) continue;
    atomicMax(&rows[places[tile] * p.group + row % p.group], i);  // the last of a row counts
  }
  __syncthreads();
  for (int i = thread; i < layout.n_copies * p.group; i += kBeginThreads) {
    const int tile = tiles[i / p.group];
    if (tile < 0 || rows[i] >= 0) continue;
    const TileEntry& entry = EntryOf(p, 0, tile / layout.n_tiles, 0, tile % layout.n_tiles);
    if (entry.state == TileState::kSealed && entry.written.Get(i % p.group)) places[tile] = -1;
  }
  __syncthreads();
  for (int i = thread; i < layout.n_copies; i += kBeginThreads) {
    if (tiles[i] >= 0 && places[tiles[i]] < 0) tiles[i] = -1;
  }
}

// One CTA kCopyRows rows of a copy (x) of a head (y) of K or V (z); a warp a row. As writing does:
// a row with a NaN or Inf becomes zeros, values are clamped to the range of fp16.
__global__ void __launch_bounds__(kCopyThreads)
    RecentCopyKernel(const __grid_constant__ RecentParams p) {
  const int parts = p.group / kCopyRows;
  const int copy = static_cast<int>(blockIdx.x) / parts;
  const int first = static_cast<int>(blockIdx.x) % parts * kCopyRows;
  const auto head = static_cast<int>(blockIdx.y);
  const auto part = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const RecentLayout& layout = p.layout;
  const int tile = reinterpret_cast<const int32_t*>(p.block + layout.tiles)[copy];
  if (tile < 0) return;
  const RecentSource& s = p.source[part];
  const int stream = tile / layout.n_tiles;
  const TileEntry& entry = EntryOf(p, part, stream, head, tile % layout.n_tiles);
  const bool open = entry.state == TileState::kOpen;
  const auto* exact =
      reinterpret_cast<const uint16_t*>(PlaneOf(p, part, stream, head) + s.exact_at) +
      static_cast<int64_t>(entry.slot) * p.group * s.dim;
  const auto* rows = reinterpret_cast<const int32_t*>(p.block + layout.rows) + copy * p.group;
  uint16_t* to = s.copies + (static_cast<int64_t>(head) * layout.n_copies + copy) * p.group * s.dim;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < kCopyRows; i += kCopyThreads / 32) {
    const int g = first + i;
    const int row = rows[g];
    uint16_t* out = to + g * s.dim;
    if (row < 0) {
      for (int d = lane; d < s.dim; d += 32) out[d] = open ? exact[g * s.dim + d] : uint16_t{0};
      continue;
    }
    const auto* x =
        reinterpret_cast<const float*>(s.x + row * s.x_row_stride + head * s.x_head_stride);
    bool finite = true;
    for (int d = lane; d < s.dim; d += 32) {
      finite = finite && (__float_as_uint(x[d]) & 0x7F800000U) != 0x7F800000U;
    }
    const bool keep = __all_sync(0xFFFFFFFFU, finite ? 1 : 0) != 0;
    for (int d = lane; d < s.dim; d += 32) {
      const float value = keep ? fminf(fmaxf(x[d], -65504.0F), 65504.0F) : 0.0F;
      out[d] = __half_as_ushort(__float2half_rn(value));
    }
  }
}

}  // namespace

void LaunchRecentBegin(const RecentParams& params, void* stream) {
  LaunchKernel(RecentBeginKernel, dim3(1), kBeginThreads, params, stream);
}

void LaunchRecentCopy(const RecentParams& params, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.layout.n_copies * (params.group / kCopyRows)),
                  static_cast<unsigned>(params.n_kv_heads), 2);
  LaunchKernel(RecentCopyKernel, grid, kCopyThreads, params, stream);
}

}  // namespace kvarn::cuda
