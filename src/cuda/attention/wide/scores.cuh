// SPDX-License-Identifier: Apache-2.0
//
// Scores of a record for all query rows of a warpgroup (docs/cuda-kernels.md). Thread (g, j) of
// warp w holds those of tokens (G/8) g + 2T + r, for its row tiles T = kKeyParts w + part and r =
// 0, 1, of query rows 8n + 2j and 8n + 2j + 1.
#pragma once

#include "cuda/attention/query.cuh"
#include "cuda/attention/wide/products.cuh"

namespace kvarn::cuda {

template <typename Shape>
using WideScores = float[Shape::kKeyParts][Shape::kColumnTiles][4];

// Q' = q^ a of column tile n into shared memory, and what follows from it. By one warp.
//   queries  of the tile, as RotateQueries leaves them
//   folded   matrix [query row][depth]
template <typename Shape>
__device__ __forceinline__ void FoldQueries(const unsigned char* record, const uint2* queries,
                                            int n, int lane, uint32_t folded,
                                            WideColumns<Shape>* columns) {
  constexpr int kPart = Shape::kKeyDim / 4;
  const int g = lane / 4;
  const int j = lane % 4;
  constexpr int kSteps = Shape::kKeyDim / 16;
  uint32_t a[kPart / 2];
  uint32_t z[kPart / 2];
  uint2 q[kSteps];
  LoadWords<kPart / 2, 16>(record + Shape::kKey.scale + 2 * kPart * j, a);
  LoadWords<kPart / 2, 16>(record + Shape::kKey.zero + 2 * kPart * j, z);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) q[s] = queries[s * kWarpSize + lane];
  const uint32_t ones[4] = {0x3C003C00U, 0x3C003C00U, 0x3C003C00U, 0x3C003C00U};
  float sum[2][4] = {};  // of even and odd steps: chains of half the length
  float zero[2][4] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint32_t rows[4] = {z[2 * s], z[2 * s], z[2 * s + 1], z[2 * s + 1]};
    MultiplyHalf(zero[s % 2], rows, q[s].x, q[s].y, zero[s % 2]);
    q[s].x = MultiplyHalf2(q[s].x, AsHalf2(a[2 * s]));
    q[s].y = MultiplyHalf2(q[s].y, AsHalf2(a[2 * s + 1]));
    MultiplyHalf(sum[s % 2], ones, q[s].x, q[s].y, sum[s % 2]);
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    StoreShared(folded + PanelOffset(Shape::kQueryRows, 8 * n + g, 2 * s) + 4 * j, q[s].x);
    StoreShared(folded + PanelOffset(Shape::kQueryRows, 8 * n + g, 2 * s + 1) + 4 * j, q[s].y);
  }
  if (g != 0) return;
  *reinterpret_cast<float2*>(columns->begin + 8 * n + 2 * j) =
      make_float2(sum[0][0] + sum[1][0], sum[0][1] + sum[1][1]);
  *reinterpret_cast<float2*>(columns->offset + 8 * n + 2 * j) =
      make_float2(zero[0][0] + zero[1][0], zero[0][1] + zero[1][1]);
}

// Scores times the token's scale; Cz and the unit of the row are left out.
template <typename Shape>
__device__ __forceinline__ void ScoreWide(const unsigned char* record, uint32_t folded,
                                          const WideColumns<Shape>& columns, int warp, int lane,
                                          WideScores<Shape>& score) {
  constexpr int kSteps = Shape::kKeyDim / 16;
  constexpr int kTiles = Shape::kGroup / 16;
  constexpr float kHalf = static_cast<float>((1 << Shape::kKeyBits) - 1) * 0.5F;
  using Codes = WarpCodes<Shape::kKeyBits, kTiles>;
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    const float2 x0 = *reinterpret_cast<const float2*>(columns.begin + 8 * n + 2 * (lane % 4));
#pragma unroll
    for (int part = 0; part < Shape::kKeyParts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[part][n][i] = (i % 2 == 0 ? x0.x : x0.y) * (-kHalf / Codes::Scale(part, i / 2));
      }
    }
  }
  MultiplyCodes<Codes, kSteps, Shape::kKeyParts>(record + Shape::kKey.codes, folded, warp, lane,
                                                 score, [] {});
  const unsigned char* t =
      record + Shape::kKey.other + 4 * kTiles * (lane / 4) + 4 * Shape::kKeyParts * warp;
#pragma unroll
  for (int part = 0; part < Shape::kKeyParts; ++part) {
    const float2 pair = __half22float2(AsHalf2(reinterpret_cast<const uint32_t*>(t)[part]));
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[part][n][i] *= i < 2 ? pair.x : pair.y;
    }
  }
}

}  // namespace kvarn::cuda
