// SPDX-License-Identifier: Apache-2.0
//
// Adds the pieces of one query row up, rotates what came from records back, and stores the output.
// Starts while the main kernel still runs and waits for it on the device; small enough to sit
// beside it on an SM. While it waits it does its work once for nothing, so that its code is in the
// instruction caches when it counts.
#include <cuda_runtime.h>

#include "cuda/attention/launch.h"
#include "cuda/attention/row_output.cuh"
#include "cuda/common/launch_kernel.h"
#include "cuda/common/overlap.cuh"

namespace kvarn::cuda {
namespace {

constexpr int kCombineWarps = 4;
constexpr int kCombineThreads = kCombineWarps * kWarpSize;
constexpr int kManyPieces = 16;  // from here on a row gets all warps of a CTA

// Adds what the other warps of the CTA have; then warp 0 has the total.
template <int kParts>
__device__ __forceinline__ void JoinWarps(RowSum<kParts> (*partial)[kWarpSize],
                                          RowSum<kParts>* total, int warp, int lane) {
  partial[warp][lane] = *total;
  __syncthreads();
  if (warp == 0) {
    total->Join(kCombineWarps - 1, [&](int i) -> auto& { return partial[1 + i][lane]; });
  }
  __syncthreads();
}

// One row a warp, or with kShared one row a CTA.
template <int kParts, bool kShared>
__global__ void __launch_bounds__(kCombineThreads, 6)
    CombineKernel(const __grid_constant__ DecodeParams p) {
  __shared__ RowSum<kParts> partial[kShared ? kCombineWarps : 1][kWarpSize];
  __shared__ PartialItem<StoredPartials::Out> items[kCombineWarps][kWarpSize];
  __shared__ float buffer[kShared ? 1 : kCombineWarps][kParts * kPartDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int dim = p.call.value_format.head_dim;
  const int subs = p.n_warps >> p.head_shift;  // warps that share a head
  const int index =
      static_cast<int>(blockIdx.x) * (kShared ? 1 : kCombineWarps) + (kShared ? 0 : warp);
  if (index >= p.query_rows * p.call.n_kv_heads * p.call.n_sequences) return;
  const int row = index % p.query_rows;
  const int kv_head = index / p.query_rows % p.call.n_kv_heads;
  const int sequence = index / p.query_rows / p.call.n_kv_heads;
  const int segment = (sequence * p.n_groups + (kv_head >> p.head_shift)) * kUnitKinds;
  // The planner's work was complete before the main kernel started.
  const int begin = p.segment_pieces[segment];
  const int n_records = (p.segment_pieces[segment + 1] - begin) * subs;
  const int n = (p.segment_pieces[segment + 2] - begin) * subs;
  // Partials of this row: those of the warps of its pieces that have this head.
  const StoredPartials partials = {
      p, PartialSlot(p, begin, kv_head & ((1 << p.head_shift) - 1)) * p.partial_rows + row,
      static_cast<int64_t>(p.partial_rows) << p.head_shift};
  const OutputRow to = OutputRowAt(p, sequence, kv_head, row);
  const int first = kShared ? warp : 0;
  // The first time a partial a warp will do, whatever it holds.
#pragma unroll 1
  for (int counts = 0; counts < 2; ++counts) {
    if (counts != 0) AwaitPrevious();
    RowSum<kParts> total;
    total.Add(partials, first, kShared ? kCombineWarps : 1, n_records,
              counts != 0 ? n : min(n, first + 1), dim, items[warp], lane);
    if constexpr (kShared) JoinWarps<kParts>(partial, &total, warp, lane);
    if (kShared && warp != 0) continue;
    StoreRow<kParts>(p, &total, to.head, counts != 0 ? to.out : nullptr, dim,
                     buffer[kShared ? 0 : warp], lane);
  }
}

template <int kParts, bool kShared>
cudaError_t Launch(const DecodeParams& p, void* stream) {
  const int rows = p.query_rows * p.call.n_kv_heads * p.call.n_sequences;
  const int ctas = kShared ? rows : (rows + kCombineWarps - 1) / kCombineWarps;
  return LaunchOverlapping(CombineKernel<kParts, kShared>, dim3(static_cast<unsigned>(ctas)),
                           kCombineThreads, p, stream);
}

}  // namespace

cudaError_t LaunchCombine(const DecodeParams& p, void* stream) {
  const int per_row = p.n_ctas * (p.n_warps >> p.head_shift) / (p.call.n_sequences * p.n_groups);
  if (p.call.value_format.head_dim <= kPartDim) {
    return per_row >= kManyPieces ? Launch<1, true>(p, stream) : Launch<1, false>(p, stream);
  }
  return per_row >= kManyPieces ? Launch<2, true>(p, stream) : Launch<2, false>(p, stream);
}

}  // namespace kvarn::cuda
