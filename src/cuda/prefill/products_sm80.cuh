// SPDX-License-Identifier: Apache-2.0
//
// The products by warp-wide matrix instructions.
#pragma once

#include "cuda/attention/ptx.cuh"
#include "cuda/prefill/products.cuh"
#include "cuda/prefill/shared_memory.cuh"

namespace kvarn::cuda {

template <bool kBf16>
__device__ __forceinline__ void Multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  if constexpr (kBf16) {
    MultiplyBf16(c, a, b0, b1, c);
  } else {
    MultiplyHalf(c, a, b0, b1, c);
  }
}

template <typename Shape, bool kBf16>
__device__ __forceinline__ void StartScore(uint32_t queries, uint32_t keys, int warp, int lane,
                                           StageScores& score) {
  const int row = lane % 8;
  const ChunkAddress<Shape::kRows> query(queries, kWarpRows * warp + row + 8 * (lane / 8 % 2),
                                         lane / 16);
  const ChunkAddress<kStageRows> key(keys, row + 8 * (lane / 16), lane / 8 % 2);
#pragma unroll
  for (int i = 0; i < 4 * kStageColumnTiles; ++i) score[i / 4][i % 4] = 0.0F;
#pragma unroll
  for (int s = 0; s < Shape::kKeySteps; ++s) {
    uint32_t a[4];
    LoadMatrices(query.At(2 * s), a);
#pragma unroll
    for (int n = 0; n < kStageColumnTiles; n += 2) {
      uint32_t b[4];
      LoadMatrices(key.At(2 * s) + 128 * 8 * n, b);
      Multiply<kBf16>(score[n], a, b[0], b[1]);
      Multiply<kBf16>(score[n + 1], a, b[2], b[3]);
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void StartAccumulateRecord(const StageWeights& weight, uint32_t values,
                                                      int lane, Outputs<Shape>& out) {
  const ChunkAddress<Shape::kValueDim> value(values, lane % 8 + 8 * (lane / 16), lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < kStageRows / 16; ++k) {
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; n += 2) {
      uint32_t b[4];
      LoadMatrices(value.At(2 * k) + 128 * 8 * n, b);
      Multiply<false>(out[n], weight[k], b[0], b[1]);
      Multiply<false>(out[n + 1], weight[k], b[2], b[3]);
    }
  }
}

template <typename Shape, bool kBf16>
__device__ __forceinline__ void AccumulateRows(const StageWeights& weight, uint32_t values,
                                               int lane, Outputs<Shape>& out) {
  const ChunkAddress<kStageRows> value(values, lane % 8 + 8 * (lane / 8 % 2), lane / 16);
#pragma unroll
  for (int k = 0; k < kStageRows / 16; ++k) {
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; n += 2) {
      uint32_t b[4];
      LoadMatricesTransposed(value.At(n) + 128 * 16 * k, b);
      Multiply<kBf16>(out[n], weight[k], b[0], b[1]);
      Multiply<kBf16>(out[n + 1], weight[k], b[2], b[3]);
    }
  }
}

template <int kLeft>
__device__ __forceinline__ void WaitProducts() {}

template <typename Shape, bool kBf16>
__device__ __forceinline__ void Score(uint32_t queries, uint32_t keys, int warp, int lane,
                                      StageScores& score) {
  StartScore<Shape, kBf16>(queries, keys, warp, lane, score);
}

}  // namespace kvarn::cuda
