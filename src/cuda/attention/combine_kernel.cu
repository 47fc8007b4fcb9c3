// SPDX-License-Identifier: Apache-2.0
//
// Adds the pieces of one query row up, rotates what came from records back, and stores the output.
// Starts while the main kernel still runs and waits for it on the device; small enough to sit
// beside it on an SM. While it waits it does its work once for nothing, so that its code is in the
// instruction caches when it counts.
#include <cuda_runtime.h>

#include "cuda/attention/launch.h"
#include "cuda/attention/row_sum.cuh"
#include "cuda/common/launch_kernel.h"
#include "cuda/common/overlap.cuh"

namespace kvarn::cuda {
namespace {

constexpr int kCombineWarps = 4;
constexpr int kCombineThreads = kCombineWarps * kWarpSize;
constexpr int kManyPieces = 16;  // from here on a row gets all warps of a CTA

// Without `out` it stores nothing.
template <int kParts>
__device__ __forceinline__ void StoreRow(const DecodeParams& p, RowSum<kParts>* total, int head,
                                         unsigned char* out, int dim, float* buffer, int lane) {
  RotateBack<kParts>(p, total->out[kRecordUnits], dim, buffer, lane);
  float gain = total->sum > 0.0F ? 1.0F / total->sum : 0.0F;
  if (p.call.sinks != nullptr && total->sum > 0.0F) {
    const float sink = p.call.sinks[head] * kLog2E;
    const float highest = fmaxf(total->top, sink);
    const float keep = Exp2(total->top - highest);
    gain = keep / (total->sum * keep + Exp2(sink - highest));
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int channel = kPartDim * part + 4 * lane;
    if (channel >= dim || out == nullptr) continue;
    float y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[i] = (total->out[kRecordUnits][part][i] * p.value_rotation_scale +
              total->out[kExactUnits][part][i]) *
             gain;
      if (p.call.query_dtype == KVARN_FP16) y[i] = fminf(fmaxf(y[i], -65504.0F), 65504.0F);
    }
    if (p.call.query_dtype == KVARN_FP32) {
      reinterpret_cast<float4*>(out)[channel / 4] = make_float4(y[0], y[1], y[2], y[3]);
      continue;
    }
    const bool bf16 = p.call.query_dtype == KVARN_BF16;
    reinterpret_cast<uint2*>(out)[channel / 4] =
        make_uint2(bf16 ? PackBf16(y[0], y[1]) : PackHalf(y[0], y[1]),
                   bf16 ? PackBf16(y[2], y[3]) : PackHalf(y[2], y[3]));
  }
}

// Adds what the other warps of the CTA have; then warp 0 has the total.
template <int kParts>
__device__ __forceinline__ void JoinWarps(RowSum<kParts> (*partial)[kWarpSize],
                                          RowSum<kParts>* total, int warp, int lane) {
  partial[warp][lane] = *total;
  __syncthreads();
  if (warp == 0) {
    float highest = total->top;
#pragma unroll
    for (int w = 1; w < kCombineWarps; ++w) highest = fmaxf(highest, partial[w][lane].top);
    total->MoveTop(highest);
#pragma unroll
    for (int w = 1; w < kCombineWarps; ++w) {
      const RowSum<kParts>& other = partial[w][lane];
      const float weight = Exp2(other.top - highest);
      total->sum = fmaf(weight, other.sum, total->sum);
#pragma unroll
      for (int i = 0; i < kUnitKinds * kParts * 4; ++i) {
        (&total->out[0][0][0])[i] =
            fmaf(weight, (&other.out[0][0][0])[i], (&total->out[0][0][0])[i]);
      }
    }
  }
  __syncthreads();
}

// One row a warp, or with kShared one row a CTA.
template <int kParts, bool kShared>
__global__ void __launch_bounds__(kCombineThreads, 6)
    CombineKernel(const __grid_constant__ DecodeParams p) {
  __shared__ RowSum<kParts> partial[kShared ? kCombineWarps : 1][kWarpSize];
  __shared__ PartialItem items[kCombineWarps][kWarpSize];
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
  const int64_t row_at =
      PartialSlot(p, begin, kv_head & ((1 << p.head_shift) - 1)) * p.partial_rows + row;
  const int64_t row_step = static_cast<int64_t>(p.partial_rows) << p.head_shift;
  const QueryRow at = QueryRowAt(p, kv_head, row);
  auto* out = static_cast<unsigned char*>(p.call.out) + sequence * p.call.out_sequence_stride +
              at.token * p.call.out_token_stride + at.head * p.call.out_head_stride;
  const int first = kShared ? warp : 0;
  // The first time a partial a warp will do, whatever it holds.
#pragma unroll 1
  for (int counts = 0; counts < 2; ++counts) {
    if (counts != 0) AwaitPrevious();
    RowSum<kParts> total;
    total.Add(p, row_at, row_step, first, kShared ? kCombineWarps : 1, n_records,
              counts != 0 ? n : min(n, first + 1), dim, items[warp], lane);
    if constexpr (kShared) JoinWarps<kParts>(partial, &total, warp, lane);
    if (kShared && warp != 0) continue;
    StoreRow<kParts>(p, &total, at.head, counts != 0 ? out : nullptr, dim,
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
