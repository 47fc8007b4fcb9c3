// SPDX-License-Identifier: Apache-2.0
//
// Pieces that the K and V encoders share: docs/format.md sections 5 and 6, the same operations in
// the same order as src/cpu/generic/encode_common-inl.h.
#pragma once

#include "cuda/encode/tile.cuh"

namespace kvarn::cuda {

__device__ __forceinline__ float Clamp(float x, float lo, float hi) {
  return fminf(fmaxf(x, lo), hi);
}
__device__ __forceinline__ float Reciprocal(float x) { return x > 0.0F ? 1.0F / x : 0.0F; }
__device__ __forceinline__ float RoundToCode(float x, float top) {
  return rintf(Clamp(x, 0.0F, top));
}
__device__ __forceinline__ float Gain(float energy, float projection) {
  return projection > 0.0F ? Clamp(energy / projection, 0.5F, 2.0F) : 1.0F;
}

inline constexpr float kGaussianStep4 = 0.9957F;

// Range fraction `i` of 3, 4 or 8 bits; selects, because a table would live in local memory.
__device__ __forceinline__ float Fraction(int bits, int i) {
  const bool three = bits == 3;
  float fraction = 1.0F;
  fraction = i == 1 ? (three ? 0.95F : 0.97F) : fraction;
  fraction = i == 2 ? (three ? 0.9F : 0.94F) : fraction;
  fraction = i == 3 ? (three ? 0.85F : 0.91F) : fraction;
  fraction = i == 4 ? (three ? 0.8F : 0.88F) : fraction;
  return i == 5 ? (three ? 0.7F : 0.82F) : fraction;
}
__device__ __forceinline__ int FractionCount(int bits) { return bits == 8 ? 1 : 6; }

__device__ __forceinline__ uint16_t ToHalf(float value, unsigned long long* saturated) {
  if (fabsf(value) >= 65520.0F) atomicAdd(saturated, 1ULL);
  return __half_as_ushort(__float2half_rn(Clamp(value, -65504.0F, 65504.0F)));
}
__device__ __forceinline__ float FromHalf(uint16_t half) {
  return __half2float(__ushort_as_half(half));
}

struct PowerSplit {
  float down;
  float up;
};
__device__ __forceinline__ PowerSplit SplitScale(float x) {
  const int k = (static_cast<int>(__float_as_uint(x) >> 23) - 127) / 2;
  return PowerSplit{__int_as_float((127 - k) << 23), __int_as_float((127 + k) << 23)};
}

// Leaves this thread's partial of sum `which` for its columns; the join reads them after a barrier.
template <int kColumns>
__device__ __forceinline__ void LeavePartial(EncodeShared<kColumns>* shared, int which,
                                             const float (&partial)[kColumns]) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) shared->partial[which][Warp()][32 * c + Lane()] = partial[c];
}

template <int kColumns>
__device__ __forceinline__ float JoinColumn(const EncodeShared<kColumns>& shared, int which,
                                            int column) {
  return JoinWarps(&shared.partial[which][0][0], EncodeShared<kColumns>::kWidth, column);
}

// The column that this thread finishes, or -1.
template <int kColumns>
__device__ __forceinline__ int OwnColumn() {
  const int column = static_cast<int>(threadIdx.x);
  return column < EncodeShared<kColumns>::kWidth ? column : -1;
}

template <int kColumns>
__device__ __forceinline__ void LoadColumns(const EncodeShared<kColumns>& shared, int which,
                                            float (&values)[kColumns]) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) values[c] = shared.column[which][32 * c + Lane()];
}

// Runs body(i, g, valid) for the sixteen tokens of this warp. Without branches, so that the
// exchanges of different tokens overlap: what a token that does not exist computes is thrown away.
template <typename Body>
__device__ __forceinline__ void ForEachToken(int n, const Body& body) {
#pragma unroll
  for (int i = 0; i < kTokensPerThread; ++i) {
    const int g = 8 * i + Warp();
    body(i, g, g < n);
  }
}

// A term of a sum over tokens; adding +0 changes nothing.
__device__ __forceinline__ float Term(float x, bool valid) { return valid ? x : 0.0F; }

struct Moments {
  float mean;
  float mean_square;
};

// Over the channels of token row i, of (x - centre) weight; every lane gets them.
template <int kColumns>
__device__ __forceinline__ Moments RowMoments(const TileRegisters<kColumns>& tile, int i,
                                              const float (&centre)[kColumns],
                                              const float (&weight)[kColumns], int head_dim) {
  float first = 0.0F;
  float second = 0.0F;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const float y = (tile.x[i][c] - centre[c]) * weight[c];
    first = first + y;
    second = second + y * y;
  }
  const float count = static_cast<float>(head_dim);
  return Moments{JoinLanes(first) / count, JoinLanes(second) / count};
}

// Over the tokens of each channel, of (x - centre) weight[token]: leaves them in partials 0 and 1.
template <int kColumns>
__device__ __forceinline__ void LeaveColumnMoments(EncodeShared<kColumns>* shared,
                                                   const TileRegisters<kColumns>& tile,
                                                   const float (&centre)[kColumns],
                                                   const float* weight, int n) {
  float first[kColumns] = {};
  float second[kColumns] = {};
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float token_weight = weight[g];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float y = Term((tile.x[i][c] - centre[c]) * token_weight, valid);
      first[c] = first[c] + y;
      second[c] = second[c] + y * y;
    }
  });
  LeavePartial(shared, 0, first);
  LeavePartial(shared, 1, second);
  __syncthreads();
}

template <int kColumns>
__device__ __forceinline__ Moments JoinMoments(const EncodeShared<kColumns>& shared, int column,
                                               int n) {
  const float count = static_cast<float>(n);
  return Moments{JoinColumn(shared, 0, column) / count, JoinColumn(shared, 1, column) / count};
}

__device__ __forceinline__ float Deviation(const Moments& m) {
  return sqrtf(fmaxf(m.mean_square - m.mean * m.mean, 0.0F));
}

// Root mean square of the tile minus `centre`, at least 1e-8. Uses token row 3; has barriers.
template <int kColumns>
__device__ float TileScale(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile,
                           const float (&centre)[kColumns], int n, int head_dim) {
  ForEachToken(n, [&](int i, int g, bool valid) {
    float sum = 0.0F;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float u = tile.x[i][c] - centre[c];
      sum = sum + u * u;
    }
    sum = JoinLanes(sum);
    if (valid && Lane() == 0) shared->token[3][g] = sum;
  });
  __syncthreads();
  const float mean = TokenSum(shared->token[3], n) / static_cast<float>(n * head_dim);
  __syncthreads();
  return fmaxf(sqrtf(mean), 1e-8F);
}

}  // namespace kvarn::cuda
