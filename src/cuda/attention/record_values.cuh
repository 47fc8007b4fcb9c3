// SPDX-License-Identifier: Apache-2.0
//
// Weights of a record times its values (record_scores.cuh has the formula).
#pragma once

#include "cuda/attention/softmax.cuh"
#include "cuda/attention/unpack.cuh"

namespace kvarn::cuda {

// From the output of records as accumulated to the true one, rotated.
template <typename Shape>
constexpr float RecordOutScale(int tile, int r) {
  return CodeScale < Shape::kValueBits, Shape::kValueTiles % 2 != 0 > (tile, r);
}

// Adds to the output, in units of 1 / RecordOutScale.
template <typename Shape>
__device__ __forceinline__ void AccumulateRecord(
    const unsigned char* record, int lane,
    const uint32_t (&p)[Shape::kColumnTiles][Shape::kTokenTiles][2],
    const float (&zero_sum)[2 * Shape::kColumnTiles], PieceState<Shape>* state) {
  constexpr RecordLayout kLayout = Shape::kValue;
  constexpr bool kUniform = Shape::kValueTiles % 2 != 0;
  constexpr int kPeriod = FactorPeriod<Shape::kValueBits, kUniform>();
  uint32_t weight[Shape::kColumnTiles][Shape::kTokenTiles][2];
  {
    uint32_t a[Shape::kTokenTiles];
    LoadWords<Shape::kTokenTiles, 4 * Shape::kTokenTiles>(
        record + kLayout.scale + 4 * Shape::kTokenTiles * (lane / 4), a);
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
      for (int tile = 0; tile < Shape::kTokenTiles; ++tile) {
        weight[n][tile][0] =
            Transpose8x8(MultiplyHalf2(p[n][tile][0], __low2half2(AsHalf2(a[tile]))));
        weight[n][tile][1] =
            Transpose8x8(MultiplyHalf2(p[n][tile][1], __high2half2(AsHalf2(a[tile]))));
      }
    }
  }
  uint32_t c[Shape::kValueTiles];
  LoadWords<Shape::kValueTiles, 4 * Shape::kValueTiles>(
      record + kLayout.other + 4 * Shape::kValueTiles * (lane / 4), c);
  // Channels in parts, where the products of all would not fit the registers.
  constexpr int kParts =
      Shape::kColumnTiles * Shape::kValueTiles > 8 && Shape::kValueTiles % 2 == 0 ? 2 : 1;
  constexpr int kTiles = Shape::kValueTiles / kParts;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int first = part * kTiles;
    float product[Shape::kColumnTiles][kTiles][4];
    float begin[Shape::kColumnTiles][kPeriod][4];  // Pz
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kPeriod * 4; ++i) {
        begin[n][i / 4][i % 4] = zero_sum[2 * n + i % 2] *
                                 (1.0F / CodeScale<Shape::kValueBits, kUniform>(i / 4, i % 4 / 2));
      }
    }
    ForEachPair<Shape::kValueBits, Shape::kTokenTiles * Shape::kValueTiles, kUniform>(
        record + kLayout.codes, lane, [&](int pair, const uint32_t(&a)[4]) {
          const int s = pair / Shape::kValueTiles;
          const int tile = pair % Shape::kValueTiles - first;
          if (tile < 0 || tile >= kTiles) return;
#pragma unroll
          for (int n = 0; n < Shape::kColumnTiles; ++n) {
            MultiplyHalf(product[n][tile], a, weight[n][s][0], weight[n][s][1],
                         s == 0 ? begin[n][(first + tile) % kPeriod] : product[n][tile]);
          }
        });
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int t = first + tile;
      const float2 pair = __half22float2(AsHalf2(c[t]));
#pragma unroll
      for (int n = 0; n < Shape::kColumnTiles; ++n) {
        float(&out)[4] = state->out[n][t];
        out[0] = fmaf(pair.x, product[n][tile][0], out[0]);
        out[1] = fmaf(pair.x, product[n][tile][1], out[1]);
        out[2] = fmaf(pair.y, product[n][tile][2], out[2]);
        out[3] = fmaf(pair.y, product[n][tile][3], out[3]);
      }
    }
  }
}

}  // namespace kvarn::cuda
