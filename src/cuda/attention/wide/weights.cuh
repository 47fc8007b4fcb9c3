// SPDX-License-Identifier: Apache-2.0
//
// Softmax weights of a record for all query rows of a warpgroup.
#pragma once

#include "cuda/attention/softmax.cuh"
#include "cuda/attention/wide/scores.cuh"

namespace kvarn::cuda {

// What a thread of a warpgroup has found out in a piece: outputs of channels (Dv/8) g + 2T + r for
// its row tiles T, and sums over its tokens.
template <typename Shape>
struct WideState {
  float out[Shape::kValueParts][Shape::kColumnTiles][4];
  float sum[Shape::kColumnTiles][2];

  __device__ __forceinline__ void Reset() {
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
      sum[n][0] = sum[n][1] = 0.0F;
#pragma unroll
      for (int part = 0; part < Shape::kValueParts; ++part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[part][n][i] = 0.0F;
      }
    }
  }
};

// What the warps have left for a pair of rows.
template <typename Shape>
__device__ __forceinline__ void LoadParts(const WideColumns<Shape>& columns, int pair,
                                          float2 (&part)[kGroupWarps]) {
#pragma unroll
  for (int w = 0; w < kGroupWarps; w += 2) {
    const float4 two = *reinterpret_cast<const float4*>(columns.part[pair] + w);
    part[w] = make_float2(two.x, two.y);
    part[w + 1] = make_float2(two.z, two.w);
  }
}

// Raises the maximum of every row to that of these scores.
template <typename Shape, bool kGeneral>
__device__ __forceinline__ void MoveTopWide(const WideScores<Shape>& score, int warp, int lane,
                                            WideColumns<Shape>* columns, WideState<Shape>* state) {
  using Codes = WarpCodes<Shape::kKeyBits, Shape::kGroup / 16>;
  const int column = 2 * (lane % 4);
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    float2 most;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float top = kLowest;
#pragma unroll
      for (int part = 0; part < Shape::kKeyParts; ++part) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          top = fmaxf(top, score[part][n][c + 2 * r] * (kGeneral ? 1.0F : Codes::Scale(part, r)));
        }
      }
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, mask));
      }
      (c == 0 ? most.x : most.y) = top;
    }
    if (lane / 4 == 0) columns->part[4 * n + lane % 4][warp] = most;
  }
  SyncWorker<kGroupWarps>();
  float moved[Shape::kColumnTiles][2];
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    float2 part[kGroupWarps];
    LoadParts(*columns, 4 * n + lane % 4, part);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int row = 8 * n + column + c;
      float top = kLowest;
#pragma unroll
      for (int w = 0; w < kGroupWarps; ++w) top = fmaxf(top, c == 0 ? part[w].x : part[w].y);
      if constexpr (!kGeneral) top = (top + columns->offset[row]) * columns->unit[row];
      const float before = columns->top[row];
      moved[n][c] = fmaxf(top, before);
      const float by = Exp2(before - moved[n][c]);
      state->sum[n][c] *= by;
#pragma unroll
      for (int i = 0; i < Shape::kValueParts; ++i) {
        state->out[i][n][c] *= by;
        state->out[i][n][c + 2] *= by;
      }
    }
  }
  SyncWorker<kGroupWarps>();  // all have read the old maximum
  if (warp == 0 && lane / 4 == 0) {
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
      columns->top[8 * n + column] = moved[n][0];
      columns->top[8 * n + column + 1] = moved[n][1];
    }
  }
  SyncWorker<kGroupWarps>();
}

// A vector over tokens of a V record as the thread's depths of a product over tokens: `pairs`
// [part][r] are tokens (G/8) 2j + 2T + r and (G/8) (2j + 1) + 2T + r.
template <typename Shape>
__device__ __forceinline__ void LoadTokenPairs(const unsigned char* vector, int warp, int lane,
                                               uint32_t (&pairs)[Shape::kKeyParts][2]) {
  constexpr int kWords = Shape::kGroup / 16;
  const auto* first =
      reinterpret_cast<const uint32_t*>(vector) + kWords * 2 * (lane % 4) + Shape::kKeyParts * warp;
#pragma unroll
  for (int part = 0; part < Shape::kKeyParts; ++part) {
    const uint32_t even = first[part];
    const uint32_t odd = first[kWords + part];
    pairs[part][0] = __byte_perm(even, odd, 0x5410);
    pairs[part][1] = __byte_perm(even, odd, 0x7632);
  }
}

// Weights times the tokens' scales as matrix `weights` [query row][token] in shared memory, in the
// depth order of V codes, and sums over each warp's tokens of weight times zero-point in
// columns->part. Ends with a barrier of the warpgroup.
//   place  of the record's first token, with options only
template <typename Shape, bool kGeneral>
__device__ __forceinline__ void WeighWide(const unsigned char* value_record,
                                          const ColumnRules<1>* rules, TilePlace place, bool first,
                                          int warp, int lane, uint32_t weights,
                                          WideScores<Shape>& score, WideColumns<Shape>* columns,
                                          WideState<Shape>* state) {
  using Codes = WarpCodes<Shape::kKeyBits, Shape::kGroup / 16>;
  const int g = lane / 4;
  const int j = lane % 4;
  if constexpr (kGeneral) {
    const auto for_each = [&](auto change) {
#pragma unroll
      for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int part = 0; part < Shape::kKeyParts; ++part) {
            change(8 * n + 2 * j + i % 2, part, i / 2, score[part][n][i]);
          }
        }
      }
    };
    for_each([&](int row, int part, int r, float& s) {
      s = fmaf(s, Codes::Scale(part, r), columns->offset[row]) * columns->unit[row];
    });
    if (rules[0].cap != 0.0F) {
      for_each([&](int row, int, int, float& s) { s = SoftCap(rules[row], s); });
    }
    if (!IsPlain(place)) {
      const int token = PositionOf(place) + Shape::kGroup / 8 * g + 2 * Shape::kKeyParts * warp;
      for_each([&](int row, int part, int r, float& s) {
        s = ApplyRules(rules[row], 0, s, token + 2 * part + r);
      });
    }
  }
  uint32_t scale[Shape::kKeyParts][2];
  uint32_t zero[Shape::kKeyParts][2];
  LoadTokenPairs<Shape>(value_record + Shape::kValue.scale, warp, lane, scale);
  LoadTokenPairs<Shape>(value_record + Shape::kValue.zero, warp, lane, zero);
  float sum[Shape::kColumnTiles][2];
  bool move = first;
#pragma unroll 1
  for (;;) {
    if (move) MoveTopWide<Shape, kGeneral>(score, warp, lane, columns, state);
    bool fits = true;
    uint32_t p[Shape::kColumnTiles][Shape::kKeyParts][2];
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
      const int row = 8 * n + 2 * j;
      const float2 top = *reinterpret_cast<const float2*>(columns->top + row);
      float2 unit = make_float2(1.0F, 1.0F);
      float2 shift = make_float2(-top.x, -top.y);
      if constexpr (!kGeneral) {
        unit = *reinterpret_cast<const float2*>(columns->unit + row);
        const float2 offset = *reinterpret_cast<const float2*>(columns->offset + row);
        shift = make_float2(fmaf(offset.x, unit.x, shift.x), fmaf(offset.y, unit.y, shift.y));
      }
      sum[n][0] = sum[n][1] = 0.0F;
#pragma unroll
      for (int part = 0; part < Shape::kKeyParts; ++part) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float of = kGeneral ? 1.0F : Codes::Scale(part, r);
          const float low = Exp2(fmaf(score[part][n][2 * r], unit.x * of, shift.x));
          const float high = Exp2(fmaf(score[part][n][2 * r + 1], unit.y * of, shift.y));
          sum[n][0] += low;
          sum[n][1] += high;
          p[n][part][r] = PackHalf(low, high);
        }
      }
      fits = fits && sum[n][0] <= kHeadRoom && sum[n][1] <= kHeadRoom;
    }
    float zeros[Shape::kColumnTiles][4] = {};
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
      for (int part = 0; part < Shape::kKeyParts; ++part) {
        uint32_t(&pair)[2] = p[n][part];
        pair[0] = Transpose8x8(pair[0]);
        pair[1] = Transpose8x8(pair[1]);
        const uint32_t rows[4] = {zero[part][0], zero[part][0], zero[part][1], zero[part][1]};
        MultiplyHalf(zeros[n], rows, pair[0], pair[1], zeros[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
      for (int part = 0; part < Shape::kKeyParts; ++part) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int chunk = 2 * (Shape::kKeyParts * warp + part) + r;
          StoreShared(weights + PanelOffset(Shape::kQueryRows, 8 * n + g, chunk) + 4 * j,
                      MultiplyHalf2(p[n][part][r], AsHalf2(scale[part][r])));
        }
      }
      if (g == 0) {
        columns->part[4 * n + j][warp] = make_float2(zeros[n][0], zeros[n][1]);
      }
    }
    FenceForMatrices();
    const bool outgrown = AnyOfWorker<kGroupWarps>(!fits);
    if (move || !outgrown) break;
    move = true;
  }
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    state->sum[n][0] += sum[n][0];
    state->sum[n][1] += sum[n][1];
  }
}

}  // namespace kvarn::cuda
