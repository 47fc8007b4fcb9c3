// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/prefill/weights.cuh"

namespace kvarn::cuda {

// Divides by the sums, sink logits included, and writes the rows of a warp.
template <typename Shape>
__device__ __forceinline__ void StoreOutputs(const PrefillParams& p, const QueryBlock& block,
                                             int warp, int lane, const RowState<Shape>& state) {
  const kvarn_cuda_decode& call = p.call.attention;
  const bool bf16 = call.dtype == KVARN_BF16;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float sum = state.sum[i];
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
    const BlockRow row = RowOf(p, block, warp * kWarpRows + 8 * i + lane / 4);
    float gain = sum > 0.0F ? 1.0F / sum : 0.0F;
    if (call.sinks != nullptr && sum > 0.0F) {
      const float sink = call.sinks[row.head] * kLog2E;
      const float highest = fmaxf(state.top[i], sink);
      const float keep = Exp2(state.top[i] - highest);
      gain = keep / (sum * keep + Exp2(sink - highest));
    }
    if (!row.real) continue;
    unsigned char* out = block.out + static_cast<int64_t>(row.token) * call.out_token_stride +
                         static_cast<int64_t>(row.head) * call.out_head_stride;
    if (call.query_dtype == KVARN_FP32) {
#pragma unroll
      for (int n = 0; n < Shape::kValueTiles; ++n) {
        reinterpret_cast<float2*>(out)[4 * n + lane % 4] =
            make_float2(state.out[n][2 * i] * gain, state.out[n][2 * i + 1] * gain);
      }
      continue;
    }
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; ++n) {
      float y[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        y[c] = state.out[n][2 * i + c] * gain;
        if (!bf16) y[c] = fminf(fmaxf(y[c], -65504.0F), 65504.0F);
      }
      reinterpret_cast<uint32_t*>(out)[4 * n + lane % 4] =
          bf16 ? PackBf16(y[0], y[1]) : PackHalf(y[0], y[1]);
    }
  }
}

}  // namespace kvarn::cuda
