// SPDX-License-Identifier: Apache-2.0
//
// From what a warp has added up of a query row to the row that the caller gets.
#pragma once

#include "cuda/attention/row_sum.cuh"

namespace kvarn::cuda {

struct OutputRow {
  int head;
  unsigned char* out;
};
__device__ __forceinline__ OutputRow OutputRowAt(const DecodeParams& p, int sequence, int kv_head,
                                                 int row) {
  const QueryRow at = QueryRowAt(p, kv_head, row);
  return {at.head, static_cast<unsigned char*>(p.call.out) + sequence * p.call.out_sequence_stride +
                       at.token * p.call.out_token_stride + at.head * p.call.out_head_stride};
}

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

}  // namespace kvarn::cuda
