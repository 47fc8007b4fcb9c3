// SPDX-License-Identifier: Apache-2.0
//
// One query row in the registers of a warp: sums over partials, and the rotation back. Channel
// 128 * part + 4 * lane + i.
#pragma once

#include "cuda/attention/softmax.cuh"

namespace kvarn::cuda {

inline constexpr uint32_t kAllLanes = 0xFFFFFFFFU;
inline constexpr int kPartDim = 4 * kWarpSize;  // channels of a part: 4 a lane

__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int mask = 1; mask < kWarpSize; mask *= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, mask));
  }
  return x;
}
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int mask = 1; mask < kWarpSize; mask *= 2) x += __shfl_xor_sync(kAllLanes, x, mask);
  return x;
}

// A partial output [dim] on its way into a row; Source (below) says what an Out is.
template <typename Out>
struct alignas(16) PartialItem {
  Out out;
  float record_weight;
  float exact_weight;
};

// The partials of a row in the workspace, one every row_step from row_at on.
struct StoredPartials {
  using Out = const float*;
  const DecodeParams& p;
  int64_t row_at, row_step;

  __device__ __forceinline__ int64_t PlaceOf(int entry) const { return row_at + entry * row_step; }
  __device__ __forceinline__ float2 Sums(int64_t place) const {
    return __ldcg(p.partial_sums + place);
  }
  __device__ __forceinline__ Out OutOf(int64_t place, int dim) const {
    return p.partial_outs + place * dim;
  }
  __device__ __forceinline__ static float4 Load(Out out, int channel) {
    return __ldcg(reinterpret_cast<const float4*>(out + channel));
  }
};

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

  // Every `stride`th of n partials from `first` on; the first n_records of all are of records. A
  // lane reads the sums of one partial, so that only outputs that count are loaded, many at once.
  //   items  [kWarpSize] of this warp, shared memory
  template <typename Source>
  __device__ __forceinline__ void Add(const Source& source, int first, int stride, int n_records,
                                      int n, int dim, PartialItem<typename Source::Out>* items,
                                      int lane) {
    for (int base = first; base < n; base += kWarpSize * stride) {
      const int entry = base + lane * stride;
      const auto place = source.PlaceOf(entry);
      float2 mine = make_float2(kLowest, 0.0F);
      if (entry < n) mine = source.Sums(place);
      const bool counts = mine.y > 0.0F;  // else nothing visible, or no unit for that warp
      const uint32_t all = __ballot_sync(kAllLanes, counts);
      const int n_items = __popc(all);
      auto* item = items + __popc(all & ((1U << lane) - 1U));
      if (counts) item->out = source.OutOf(place, dim);
      __syncwarp();
      float4 loaded[kAtOnce][kParts] = {};
      Load<Source>(items, n_items, dim, lane, loaded);
      // While they come:
      MoveTop(fmaxf(top, WarpMax(counts ? mine.x : kLowest)));
      const float weight = counts ? Exp2(mine.x - top) : 0.0F;
      sum += WarpSum(weight * mine.y);
      const bool record = entry < n_records;
      if (counts) item->record_weight = record ? weight : 0.0F;
      if (counts) item->exact_weight = record ? 0.0F : weight;
      __syncwarp();
      for (int i = 0;;) {
        AddLoaded(items + i, n_items - i, loaded);
        i += kAtOnce;
        if (i >= n_items) break;
        Load<Source>(items + i, n_items - i, dim, lane, loaded);
      }
      __syncwarp();
    }
  }

  // Adds what n other warps have of the row: other_at(i), i < n.
  template <typename Other>
  __device__ __forceinline__ void Join(int n, Other other_at) {
    float highest = top;
    for (int i = 0; i < n; ++i) highest = fmaxf(highest, other_at(i).top);
    MoveTop(highest);
    for (int i = 0; i < n; ++i) {
      const RowSum& other = other_at(i);
      const float weight = Exp2(other.top - highest);
      sum = fmaf(weight, other.sum, sum);
#pragma unroll
      for (int k = 0; k < kUnitKinds * kParts * 4; ++k) {
        (&out[0][0][0])[k] = fmaf(weight, (&other.out[0][0][0])[k], (&out[0][0][0])[k]);
      }
    }
  }

 private:
  static constexpr int kAtOnce = kParts == 1 ? 8 : 4;

  template <typename Source>
  __device__ __forceinline__ static void Load(const PartialItem<typename Source::Out>* items, int n,
                                              int dim, int lane,
                                              float4 (&loaded)[kAtOnce][kParts]) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int channel = kPartDim * part + 4 * lane;
        if (i < n && channel < dim) {
          loaded[i][part] = Source::Load(items[i].out, channel);
        }
      }
    }
  }
  template <typename Out>
  __device__ __forceinline__ void AddLoaded(const PartialItem<Out>* items, int n,
                                            const float4 (&loaded)[kAtOnce][kParts]) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i >= n) break;
      AddScaled(items[i].record_weight, loaded[i], out[kRecordUnits]);
      AddScaled(items[i].exact_weight, loaded[i], out[kExactUnits]);
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
        x[part][i] = fmaf(sign, x[part][i], __shfl_xor_sync(kAllLanes, x[part][i], bit));
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
