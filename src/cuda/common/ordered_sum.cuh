// SPDX-License-Identifier: Apache-2.0
//
// The sums of docs/format.md section 1 on a CTA of 256 threads that holds a tile in registers: warp
// w has tokens 8 i + w, lane l has channels 32 c + l. Compiled with --fmad=false.
#pragma once

#include <cstdint>

namespace kvarn::cuda {

inline constexpr int kWarps = 8;  // = partial sums over tokens
inline constexpr int kEncodeThreads = 32 * kWarps;
inline constexpr int kTokensPerThread = 16;  // 128 / kWarps

__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x) >> 5; }
__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) & 31; }

// Joins 32 partial sums over channels, one a lane; every lane gets the result. Addition commutes,
// so the exchange gives p[i] + p[i + half] on both sides.
__device__ __forceinline__ float JoinLanes(float partial) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    partial = partial + __shfl_xor_sync(0xFFFFFFFFU, partial, half);
  }
  return partial;
}

// Sum over tokens of values[0..n-1] in shared memory; every thread of the warp gets it.
__device__ __forceinline__ float TokenSum(const float* values, int n) {
  float partial = 0.0F;
  const int k = Lane() & 7;
  for (int g = k; g < n; g += 8) partial = partial + values[g];
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    partial = partial + __shfl_xor_sync(0xFFFFFFFFU, partial, half);
  }
  return partial;
}

// Joins the 8 partial sums of a column that the warps left in `partial` [8][columns].
__device__ __forceinline__ float JoinWarps(const float* partial, int columns, int column) {
  float p[kWarps];
#pragma unroll
  for (int i = 0; i < kWarps; ++i) p[i] = partial[i * columns + column];
#pragma unroll
  for (int half = kWarps / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) p[i] = p[i] + p[i + half];
  }
  return p[0];
}

}  // namespace kvarn::cuda
