// SPDX-License-Identifier: Apache-2.0
//
// Query statistics of a row: rms over the query heads of a KV head, as fp16 (docs/architecture.md
// section 4). Compiled with --fmad=false: the CPU's sums in the CPU's order.
#pragma once

#include <cuda_fp16.h>

#include "cuda/cache/row_values.cuh"

namespace kvarn::cuda {

inline constexpr int kMaxQueryHeads = 16;  // of a KV head
inline constexpr float kHalfTop = 65504.0F;

// Over n_heads (at most kMaxQueryHeads) query values query(head). NaN if one is not finite or the
// rms does not fit fp16.
template <typename Query>
__device__ __forceinline__ float RmsOfHeads(int n_heads, const Query& query) {
  float sum[kMaxQueryHeads];
#pragma unroll
  for (int h = 0; h < kMaxQueryHeads; ++h) {
    const float q = h < n_heads ? query(h) : 0.0F;
    sum[h] = q * q;
  }
#pragma unroll
  for (int half = kMaxQueryHeads / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) sum[i] = sum[i] + sum[i + half];
  }
  const float rms = sqrtf(sum[0] / static_cast<float>(n_heads));
  return rms <= kHalfTop ? rms : NAN;
}

__device__ __forceinline__ float QueryRms(const AppendParams& p, int row, int kv_head,
                                          int channel) {
  const auto* from = static_cast<const uint8_t*>(p.call.query) + row * p.call.query_row_stride +
                     kv_head * p.heads_per_kv * p.call.query_head_stride;
  return RmsOfHeads(p.heads_per_kv, [&](int h) {
    return ToValue(reinterpret_cast<const uint16_t*>(from + h * p.call.query_head_stride)[channel],
                   p.call.dtype);
  });
}

// As it is kept.
__device__ __forceinline__ float RoundedRms(const AppendParams& p, int row, int kv_head,
                                            int channel) {
  return __half2float(__float2half_rn(QueryRms(p, row, kv_head, channel)));
}

__device__ __forceinline__ uint16_t* QueryRmsRow(const AppendParams& p, int64_t ring_row,
                                                 int kv_head) {
  return reinterpret_cast<uint16_t*>(static_cast<uint8_t*>(p.call.query_rms) +
                                     ring_row * p.call.query_rms_row_stride) +
         kv_head * p.call.key_format.head_dim;
}

}  // namespace kvarn::cuda
