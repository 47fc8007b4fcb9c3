// SPDX-License-Identifier: Apache-2.0
//
// Attention of a warp's queries to kExactUnitRows exact rows: sinks, open tiles, the tail. Score
// rows are tokens 8 r + g of the unit; output rows of channel tile c are channels 16 c + 4 (g / 2)
// + 2 r + g % 2.
#pragma once

#include "cuda/attention/softmax.cuh"

namespace kvarn::cuda {

__device__ __forceinline__ int ExactChannel(int tile, int r, int lane) {
  return 16 * tile + 4 * (lane / 8) + 2 * r + (lane / 4) % 2;
}

__device__ __forceinline__ void MultiplyRows(bool bf16, float (&c)[4], const uint32_t (&a)[4],
                                             uint32_t b0, uint32_t b1) {
  if (bf16) {
    MultiplyBf16(c, a, b0, b1, c);
  } else {
    MultiplyHalf(c, a, b0, b1, c);
  }
}

// Rows g and g + 8 of a unit, channels 16 s + 4 j onwards, straight from memory.
template <int kSteps>
struct RowFragments {
  uint2 x[kSteps][2];

  // Rows that do not exist repeat the last of n_rows: their weight will be 0.
  __device__ __forceinline__ void Load(const unsigned char* rows, int64_t stride, int n_rows,
                                       int lane) {
    const unsigned char* low = rows + min(lane / 4, n_rows - 1) * stride + 8 * (lane % 4);
    const unsigned char* high = rows + min(lane / 4 + 8, n_rows - 1) * stride + 8 * (lane % 4);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      x[s][0] = __ldcs(reinterpret_cast<const uint2*>(low + 32 * s));
      x[s][1] = __ldcs(reinterpret_cast<const uint2*>(high + 32 * s));
    }
  }
};

// Scores of the columns of this thread, without scale.
template <typename Shape>
__device__ __forceinline__ void ScoreRows(bool bf16, const RowFragments<Shape::kKeySteps>& k,
                                          const uint2* operand, int lane,
                                          float (&score)[Shape::kColumnTiles][4]) {
#pragma unroll
  for (int s = 0; s < Shape::kKeySteps; ++s) {
    const uint32_t a[4] = {k.x[s][0].x, k.x[s][1].x, k.x[s][0].y, k.x[s][1].y};
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
      const uint2 q = operand[(n * Shape::kKeySteps + s) * kWarpSize + lane];
      MultiplyRows(bf16, score[n], a, q.x, q.y);
    }
  }
}

template <typename Shape, bool kGeneral>
__device__ __forceinline__ void WeighRows(const DecodeParams& p, TilePlace place, int n_rows,
                                          int lane,
                                          const ColumnRules<2 * Shape::kColumnTiles>& rules,
                                          float (&score)[Shape::kColumnTiles][4],
                                          PieceState<Shape>* state) {
  const int g = lane / 4;
  const int position = PositionOf(place);
  const float unit = p.call.scale * kLog2E;
  const auto for_each = [&](auto change) {
#pragma unroll
    for (int i = 0; i < 4 * Shape::kColumnTiles; ++i) {
      change(i / 4 * 2 + i % 2, i % 4 / 2, score[i / 4][i % 4]);
    }
  };
  for_each([&](int, int, float& s) { s *= unit; });
  if constexpr (kGeneral) {
    if (rules.cap != 0.0F) for_each([&](int, int, float& s) { s = SoftCap(rules, s); });
    if (!IsPlain(place)) {
      for_each([&](int c, int r, float& s) { s = ApplyRules(rules, c, s, position + 8 * r + g); });
    }
  }
  for_each([&](int c, int r, float& s) {
    const int row = 8 * r + g;
    if (row >= n_rows || position + row > rules.last[c]) s = -INFINITY;
  });
#pragma unroll
  for (int c = 0; c < 2 * Shape::kColumnTiles; ++c) {
    float top = state->softmax.top[c];
#pragma unroll
    for (int r = 0; r < 2; ++r) top = fmaxf(top, score[c / 2][2 * r + c % 2]);
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, mask));
    }
    const float shrink = Exp2(state->softmax.top[c] - top);
    state->softmax.top[c] = top;
    state->Shrink(c, shrink);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float& s = score[c / 2][2 * r + c % 2];
      s = Exp2(s - top);
      state->softmax.sum[c] += s;
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void AccumulateRows(bool bf16, const RowFragments<Shape::kValueTiles>& v,
                                               int lane,
                                               const float (&weights)[Shape::kColumnTiles][4],
                                               PieceState<Shape>* state) {
  uint32_t weight[Shape::kColumnTiles][2];
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float* w = weights[n] + 2 * r;
      weight[n][r] = Transpose8x8(bf16 ? PackBf16(w[0], w[1]) : PackHalf(w[0], w[1]));
    }
  }
#pragma unroll
  for (int tile = 0; tile < Shape::kValueTiles; ++tile) {
    const uint32_t a[4] = {Transpose8x8(v.x[tile][0].x), Transpose8x8(v.x[tile][0].y),
                           Transpose8x8(v.x[tile][1].x), Transpose8x8(v.x[tile][1].y)};
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
      MultiplyRows(bf16, state->out[n][tile], a, weight[n][0], weight[n][1]);
    }
  }
}

}  // namespace kvarn::cuda
