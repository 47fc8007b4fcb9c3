// SPDX-License-Identifier: Apache-2.0
//
// Attention of a warp's queries to one record pair, on raw codes (docs/cuda-kernels.md).
//   S[h,g] = t[g] (X0[h] + sum_d Q'[h,d] c[d,g]) + Cz[h]      Q' = q^ a, X0 = -(Q/2) sum Q', Cz =
//   q^ z O[h,d] += C[d] (sum_g P'[h,g] c[g,d] + Pz[h])             P' = p a,  Pz = p z
// Thread (g, j) of the warp holds scores of tokens (G/8) g + 2T + r and outputs of channels
// (Dv/8) g + 2T + r, for row tiles T and r = 0, 1, in columns 2j and 2j+1.
#pragma once

#include "cuda/attention/softmax.cuh"
#include "cuda/attention/unpack.cuh"

namespace kvarn::cuda {

template <typename Shape>
using Scores = float[Shape::kColumnTiles][Shape::kTokenTiles][4];

// Scores of one K record: times CodeScale(tile, r), plus `offset`, times the unit of the column.
template <typename Shape>
__device__ __forceinline__ void ScoreRecord(const unsigned char* record, const uint2* operand,
                                            int lane, Scores<Shape>& score,
                                            float (&offset)[2 * Shape::kColumnTiles]) {
  constexpr RecordLayout kLayout = Shape::kKey;
  constexpr int kPart = Shape::kKeyDim / 4;
  constexpr float kHalf = static_cast<float>((1 << Shape::kKeyBits) - 1) * 0.5F;
  constexpr int kAlign = kPart % 8 == 0 ? 16 : 8;
  constexpr int kPeriod = FactorPeriod<Shape::kKeyBits, false>();
  uint32_t weight[Shape::kColumnTiles][Shape::kKeySteps][2];
  float begin[Shape::kColumnTiles][kPeriod][4];  // X0
  {
    uint32_t a[kPart / 2];
    uint32_t z[kPart / 2];
    LoadWords<kPart / 2, kAlign>(record + kLayout.scale + 2 * kPart * (lane % 4), a);
    LoadWords<kPart / 2, kAlign>(record + kLayout.zero + 2 * kPart * (lane % 4), z);
    const uint32_t ones[4] = {0x3C003C00U, 0x3C003C00U, 0x3C003C00U, 0x3C003C00U};
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
      float sum[4] = {};
      float zero[4] = {};
#pragma unroll
      for (int s = 0; s < Shape::kKeySteps; ++s) {
        const uint2 q = operand[(n * Shape::kKeySteps + s) * kWarpSize + lane];
        weight[n][s][0] = MultiplyHalf2(q.x, AsHalf2(a[2 * s]));
        weight[n][s][1] = MultiplyHalf2(q.y, AsHalf2(a[2 * s + 1]));
        MultiplyHalf(sum, ones, weight[n][s][0], weight[n][s][1], sum);
        const uint32_t rows[4] = {z[2 * s], z[2 * s], z[2 * s + 1], z[2 * s + 1]};
        MultiplyHalf(zero, rows, q.x, q.y, zero);
      }
      offset[2 * n] = zero[0];
      offset[2 * n + 1] = zero[1];
#pragma unroll
      for (int i = 0; i < kPeriod * 4; ++i) {
        begin[n][i / 4][i % 4] =
            sum[i % 2] * (-kHalf / CodeScale<Shape::kKeyBits, false>(i / 4, i % 4 / 2));
      }
    }
  }
  ForEachPair<Shape::kKeyBits, Shape::kKeySteps * Shape::kTokenTiles, false>(
      record + kLayout.codes, lane, [&](int pair, const uint32_t(&a)[4]) {
        const int s = pair / Shape::kTokenTiles;
        const int tile = pair % Shape::kTokenTiles;
#pragma unroll
        for (int n = 0; n < Shape::kColumnTiles; ++n) {
          MultiplyHalf(score[n][tile], a, weight[n][s][0], weight[n][s][1],
                       s == 0 ? begin[n][tile % kPeriod] : score[n][tile]);
        }
      });
  uint32_t t[Shape::kTokenTiles];
  LoadWords<Shape::kTokenTiles, 4 * Shape::kTokenTiles>(
      record + kLayout.other + 4 * Shape::kTokenTiles * (lane / 4), t);
#pragma unroll
  for (int tile = 0; tile < Shape::kTokenTiles; ++tile) {
    const float2 pair = __half22float2(AsHalf2(t[tile]));
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
      score[n][tile][0] *= pair.x;
      score[n][tile][1] *= pair.x;
      score[n][tile][2] *= pair.y;
      score[n][tile][3] *= pair.y;
    }
  }
}

}  // namespace kvarn::cuda
