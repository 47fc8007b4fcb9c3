// SPDX-License-Identifier: Apache-2.0
//
// The two products of a warp's query rows with a stage of K and V in shared memory. Thread (g, j) =
// (lane / 4, lane % 4) has query rows 16 t + g and 16 t + g + 8 of the warp, in each 8 columns the
// columns 2j and 2j + 1.
#pragma once

#include "cuda/attention/ptx.cuh"
#include "cuda/prefill/shape.h"
#include "cuda/prefill/shared_memory.cuh"

namespace kvarn::cuda {

inline constexpr int kStageColumnTiles = kStageRows / 8;

template <typename Shape>
using StageScores = float[Shape::kRowTiles][kStageColumnTiles][4];
// Softmax weights as operands: [row tile][16 slots][4 registers].
template <typename Shape>
using StageWeights = uint32_t[Shape::kRowTiles][kStageRows / 16][4];
template <typename Shape>
using Outputs = float[Shape::kRowTiles][Shape::kValueTiles][4];

template <bool kBf16>
__device__ __forceinline__ void Multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  if constexpr (kBf16) {
    MultiplyBf16(c, a, b0, b1, c);
  } else {
    MultiplyHalf(c, a, b0, b1, c);
  }
}

// queries, keys: shared addresses of the CTA's query rows and the stage's rows.
template <typename Shape, bool kBf16>
__device__ __forceinline__ void Score(uint32_t queries, uint32_t keys, int warp, int lane,
                                      StageScores<Shape>& score) {
  const int own = lane % 8;
  const int query_row = warp * Shape::kWarpRows + own + 8 * (lane / 8 % 2);
  const ChunkAddress query(queries + query_row * Shape::kKeyPitch, own, lane / 16);
  const int key_row = own + 8 * (lane / 16);
  const ChunkAddress key(keys + key_row * Shape::kKeyPitch, own, lane / 8 % 2);
#pragma unroll
  for (int t = 0; t < Shape::kRowTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kStageColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[t][n][i] = 0.0F;
    }
  }
#pragma unroll
  for (int s = 0; s < Shape::kKeySteps; ++s) {
    uint32_t a[Shape::kRowTiles][4];
#pragma unroll
    for (int t = 0; t < Shape::kRowTiles; ++t) {
      LoadMatrices(query.At(2 * s) + 16 * t * Shape::kKeyPitch, a[t]);
    }
#pragma unroll
    for (int n = 0; n < kStageColumnTiles; n += 2) {
      uint32_t b[4];
      LoadMatrices(key.At(2 * s) + 8 * n * Shape::kKeyPitch, b);
#pragma unroll
      for (int t = 0; t < Shape::kRowTiles; ++t) {
        Multiply<kBf16>(score[t][n], a[t], b[0], b[1]);
        Multiply<kBf16>(score[t][n + 1], a[t], b[2], b[3]);
      }
    }
  }
}

// values: V of a record, [permuted channel][slot].
template <typename Shape>
__device__ __forceinline__ void AccumulateRecord(const StageWeights<Shape>& weight, uint32_t values,
                                                 int lane, Outputs<Shape>& out) {
  const int own = lane % 8;
  const ChunkAddress value(values + (own + 8 * (lane / 16)) * Shape::kChannelPitch, own,
                           lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < kStageRows / 16; ++k) {
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; n += 2) {
      uint32_t b[4];
      LoadMatrices(value.At(2 * k) + 8 * n * Shape::kChannelPitch, b);
#pragma unroll
      for (int t = 0; t < Shape::kRowTiles; ++t) {
        Multiply<false>(out[t][n], weight[t][k], b[0], b[1]);
        Multiply<false>(out[t][n + 1], weight[t][k], b[2], b[3]);
      }
    }
  }
}

// values: exact V, [position][channel].
template <typename Shape, bool kBf16>
__device__ __forceinline__ void AccumulateRows(const StageWeights<Shape>& weight, uint32_t values,
                                               int lane, Outputs<Shape>& out) {
  const int own = lane % 8;
  const ChunkAddress value(values + (own + 8 * (lane / 8 % 2)) * Shape::kValuePitch, own,
                           lane / 16);
#pragma unroll
  for (int k = 0; k < kStageRows / 16; ++k) {
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; n += 2) {
      uint32_t b[4];
      LoadMatricesTransposed(value.At(n) + 16 * k * Shape::kValuePitch, b);
#pragma unroll
      for (int t = 0; t < Shape::kRowTiles; ++t) {
        Multiply<kBf16>(out[t][n], weight[t][k], b[0], b[1]);
        Multiply<kBf16>(out[t][n + 1], weight[t][k], b[2], b[3]);
      }
    }
  }
}

}  // namespace kvarn::cuda
