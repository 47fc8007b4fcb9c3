// SPDX-License-Identifier: Apache-2.0
//
// One query row in the registers of a warp: sums over partials, and the rotation back. Channel
// 128 * part + 4 * lane + i.
#pragma once

#include "cuda/attention/softmax.cuh"

namespace kvarn::cuda {

inline constexpr int kPartDim = 4 * kWarpSize;  // channels of a part: 4 a lane

template <int kParts>
struct RowSum {
  float top = kLowest;
  float sum = 0.0F;
  float out[kUnitKinds][kParts][4] = {};

  __device__ __forceinline__ void MoveTop(float to) {
    if (to == top) return;
    const float shrink = Exp2(top - to);
    top = to;
    sum *= shrink;
#pragma unroll
    for (int i = 0; i < kUnitKinds * kParts * 4; ++i) (&out[0][0][0])[i] *= shrink;
  }

  __device__ __forceinline__ static void AddScaled(float weight, const float4 (&x)[kParts],
                                                   float (&to)[kParts][4]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      to[part][0] = fmaf(weight, x[part].x, to[part][0]);
      to[part][1] = fmaf(weight, x[part].y, to[part][1]);
      to[part][2] = fmaf(weight, x[part].z, to[part][2]);
      to[part][3] = fmaf(weight, x[part].w, to[part][3]);
    }
  }

  // Every `stride`th partial from `first` on.
  __device__ __forceinline__ void Add(const DecodeParams& p, int64_t row_at, int64_t row_step,
                                      int first, int stride, int n_records, int n, int dim,
                                      int lane) {
    constexpr int kAtOnce = kParts == 1 ? 4 : 2;
    for (int base = first; base < n; base += kAtOnce * stride) {
      float2 sums[kAtOnce];
      float4 loaded[kAtOnce][kParts];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int entry = base + i * stride;
        const int64_t at = row_at + entry * row_step;
        sums[i] = make_float2(kLowest, 0.0F);
        if (entry >= n) continue;
        sums[i] = __ldcg(p.partial_sums + at);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const int channel = kPartDim * part + 4 * lane;
          if (channel >= dim) continue;
          loaded[i][part] =
              __ldcg(reinterpret_cast<const float4*>(p.partial_outs + at * dim + channel));
        }
      }
      float highest = top;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) highest = fmaxf(highest, sums[i].x);
      MoveTop(highest);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (base + i * stride >= n) break;
        if (!(sums[i].y > 0.0F)) continue;  // nothing visible, or no unit for this warp
        const float weight = Exp2(sums[i].x - top);
        sum = fmaf(weight, sums[i].y, sum);
        if (base + i * stride < n_records) {
          AddScaled(weight, loaded[i], out[kRecordUnits]);
        } else {
          AddScaled(weight, loaded[i], out[kExactUnits]);
        }
      }
    }
  }
};

__device__ __forceinline__ void Butterfly(float* a, float* b) {
  const float x = *a;
  *a = x + *b;
  *b = x - *b;
}

// x H^T but for the scale, of a row spread over a warp; `buffer` [dim] is this warp's.
template <int kParts>
__device__ __forceinline__ void RotateBack(const DecodeParams& p, float (&x)[kParts][4], int dim,
                                           float* buffer, int lane) {
  const int block = dim / p.value_small_dim;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if (block > 1) {
      Butterfly(&x[part][0], &x[part][1]);
      Butterfly(&x[part][2], &x[part][3]);
    }
    if (block > 2) {
      Butterfly(&x[part][0], &x[part][2]);
      Butterfly(&x[part][1], &x[part][3]);
    }
#pragma unroll
    for (int bit = 1; bit < kWarpSize; bit *= 2) {
      if (4 * bit >= block) break;
      const float sign = (lane & bit) != 0 ? -1.0F : 1.0F;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[part][i] = fmaf(sign, x[part][i], __shfl_xor_sync(0xFFFFFFFFU, x[part][i], bit));
      }
    }
  }
  if constexpr (kParts == 2) {
    if (block == 2 * kPartDim) {
#pragma unroll
      for (int i = 0; i < 4; ++i) Butterfly(&x[0][i], &x[1][i]);
    }
  }
  if (p.value_small == nullptr) return;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int d = kPartDim * part + 4 * lane + i;
      if (d < dim) buffer[d] = x[part][i];
    }
  }
  __syncwarp();
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int d = kPartDim * part + 4 * lane + i;
      if (d >= dim) continue;
      const int8_t* signs = p.value_small + d / block * p.value_small_dim;
      float y = 0.0F;
#pragma unroll 1
      for (int from = 0; from < p.value_small_dim; ++from) {
        y = fmaf(static_cast<float>(signs[from]), buffer[from * block + d % block], y);
      }
      x[part][i] = y;
    }
  }
}

}  // namespace kvarn::cuda
