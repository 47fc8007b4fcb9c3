// SPDX-License-Identifier: Apache-2.0
//
// From the scores of a record to softmax weights.
#pragma once

#include "cuda/attention/record_scores.cuh"

namespace kvarn::cuda {

// Raises the maximum to that of these scores.
template <typename Shape, bool kGeneral>
__device__ __forceinline__ void MoveTop(const Scores<Shape>& score,
                                        const float (&offset)[2 * Shape::kColumnTiles],
                                        const float (&unit)[2 * Shape::kColumnTiles],
                                        PieceState<Shape>* state) {
#pragma unroll
  for (int c = 0; c < 2 * Shape::kColumnTiles; ++c) {
    float top = kLowest;
#pragma unroll
    for (int tile = 0; tile < Shape::kTokenTiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float to_score = kGeneral ? 1.0F : CodeScale<Shape::kKeyBits, false>(tile, r);
        top = fmaxf(top, score[c / 2][tile][c % 2 + 2 * r] * to_score);
      }
    }
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, mask));
    }
    if constexpr (!kGeneral) top = (top + offset[c]) * unit[c];
    top = fmaxf(top, state->softmax.top[c]);
    state->Shrink(c, Exp2(state->softmax.top[c] - top));
    state->softmax.top[c] = top;
  }
}

// Soft-cap, bias, mask and visibility of a record's scores. Apart, and on a copy in memory: few
// tiles need it, and jumps over so much code are dear where the instruction cache is cold.
template <typename Shape>
__device__ __noinline__ void ApplyRulesApart(const ColumnRules<2 * Shape::kColumnTiles>& rules,
                                             TilePlace place, int lane, Scores<Shape>& score) {
  const int first_token = PositionOf(place) + 2 * Shape::kTokenTiles * (lane / 4);
#pragma unroll 2
  for (int tile = 0; tile < Shape::kTokenTiles; ++tile) {
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& s = score[n][tile][i];
        const int c = 2 * n + i % 2;
        if (rules.cap != 0.0F) s = SoftCap(rules, s);
        if (!IsPlain(place)) s = ApplyRules(rules, c, s, first_token + 2 * tile + i / 2);
      }
    }
  }
}

// Scores become log2 of weights, with what a call with options adds.
template <typename Shape>
__device__ __forceinline__ void ApplyOptions(const ColumnRules<2 * Shape::kColumnTiles>& rules,
                                             TilePlace place, int lane,
                                             const float (&offset)[2 * Shape::kColumnTiles],
                                             const float (&unit)[2 * Shape::kColumnTiles],
                                             Scores<Shape>& score) {
  const auto for_each = [](auto change) {
#pragma unroll
    for (int i = 0; i < 4 * Shape::kColumnTiles * Shape::kTokenTiles; ++i) {
      change(i / (4 * Shape::kTokenTiles), i / 4 % Shape::kTokenTiles, i % 4);
    }
  };
  for_each([&](int n, int tile, int i) {
    const int c = 2 * n + i % 2;
    float& s = score[n][tile][i];
    s = fmaf(s, CodeScale<Shape::kKeyBits, false>(tile, i / 2), offset[c]) * unit[c];
  });
  if (IsPlain(place) && rules.cap == 0.0F) return;
  Scores<Shape> copy;
  for_each([&](int n, int tile, int i) { copy[n][tile][i] = score[n][tile][i]; });
  ApplyRulesApart<Shape>(rules, place, lane, copy);
  for_each([&](int n, int tile, int i) { score[n][tile][i] = copy[n][tile][i]; });
}

// Softmax weights of one record as fp16 pairs (columns 2j, 2j+1) of each token, and Pz. Moves the
// maximum for the first record of a piece and when a weight outgrows the head room, else takes
// none.
template <typename Shape, bool kGeneral>
__device__ __forceinline__ void WeighRecord(
    const unsigned char* value_record, const ColumnRules<2 * Shape::kColumnTiles>& rules,
    TilePlace place, int lane, bool first, Scores<Shape>& score,
    const float (&offset)[2 * Shape::kColumnTiles], const float (&unit)[2 * Shape::kColumnTiles],
    PieceState<Shape>* state, uint32_t (&p)[Shape::kColumnTiles][Shape::kTokenTiles][2],
    float (&zero_sum)[2 * Shape::kColumnTiles]) {
  constexpr int kColumns = 2 * Shape::kColumnTiles;
  constexpr int kPeriod = FactorPeriod<Shape::kKeyBits, false>();
  if constexpr (kGeneral) ApplyOptions<Shape>(rules, place, lane, offset, unit, score);
  uint32_t z[Shape::kTokenTiles];
  LoadWords<Shape::kTokenTiles, 4 * Shape::kTokenTiles>(
      value_record + Shape::kValue.zero + 4 * Shape::kTokenTiles * (lane / 4), z);
  float sum[kColumns];
  bool move = first;
#pragma unroll 1
  for (;;) {
    if (move) MoveTop<Shape, kGeneral>(score, offset, unit, state);
    float scale[kColumns][kPeriod][2];
    float shift[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kPeriod * 2; ++i) {
        scale[c][i / 2][i % 2] =
            kGeneral ? 1.0F : unit[c] * CodeScale<Shape::kKeyBits, false>(i / 2, i % 2);
      }
      shift[c] =
          kGeneral ? -state->softmax.top[c] : fmaf(offset[c], unit[c], -state->softmax.top[c]);
      sum[c] = 0.0F;
      zero_sum[c] = 0.0F;
    }
#pragma unroll
    for (int tile = 0; tile < Shape::kTokenTiles; ++tile) {
      const float2 zf = __half22float2(AsHalf2(z[tile]));
#pragma unroll
      for (int n = 0; n < Shape::kColumnTiles; ++n) {
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = 2 * n + i % 2;
          w[i] = Exp2(fmaf(score[n][tile][i], scale[c][tile % kPeriod][i / 2], shift[c]));
          sum[c] += w[i];
          zero_sum[c] = fmaf(w[i], i < 2 ? zf.x : zf.y, zero_sum[c]);
        }
        p[n][tile][0] = PackHalf(w[0], w[1]);
        p[n][tile][1] = PackHalf(w[2], w[3]);
      }
    }
    bool fits = true;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) fits = fits && sum[c] <= kHeadRoom;
    if (move || __all_sync(0xFFFFFFFFU, fits)) break;
    move = true;
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    state->softmax.sum[c] += sum[c];
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      zero_sum[c] += __shfl_xor_sync(0xFFFFFFFFU, zero_sum[c], mask);
    }
  }
}

}  // namespace kvarn::cuda
