// SPDX-License-Identifier: Apache-2.0
//
// The running softmax of a warp's query rows.
#pragma once

#include "cuda/prefill/block.cuh"
#include "cuda/prefill/products.cuh"

namespace kvarn::cuda {

// The maximum in use may be this much too small (log2): weights up to 2^6 cost nothing, and once a
// row has seen its first rows it is hardly ever moved.
inline constexpr float kSlack = 6.0F;

template <typename Shape>
struct RowState {
  Outputs<Shape> out;
  float top[2];  // log2
  float sum[2];  // of this thread's columns

  __device__ __forceinline__ void Reset() {
#pragma unroll
    for (int i = 0; i < 2; ++i) top[i] = kLowest, sum[i] = 0.0F;
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] = 0.0F;
    }
  }
};

// Where the columns of a stage are.
struct StageColumns {
  Part part;
  int first, last;  // positions, all in between included
  int base;         // position of slot 0
};
// Position of column 2j + i of column tile n.
template <typename Shape>
__device__ __forceinline__ int ColumnPosition(const StageColumns& at, int n, int column) {
  return at.base + (at.part == Part::kRecords ? Shape::kGroup / 8 * column + n : 8 * n + column);
}

// Without a branch; off by 2^-22 at most, in absolute terms, which is what a score needs.
__device__ __forceinline__ float Tanh(float x) {
  return 1.0F - __fdividef(2.0F, Exp2(2.0F * kLog2E * x) + 1.0F);
}

// AlibiSlope.
__device__ __forceinline__ float SlopeOf(const PrefillParams& p, int head) {
  const int beyond = head - p.bias_heads;
  return Exp2(p.bias_step * (beyond < 0 ? static_cast<float>(head + 1)
                                        : 0.5F * static_cast<float>(2 * beyond + 1)));
}

// Adds the mask of one query row where a stage has all of its positions and the mask is aligned to
// 16 bytes: a thread's columns of a record are eight positions in a row, those of exact rows two.
//   mask  of the position of slot 0
template <typename Shape, int kScores>
__device__ __forceinline__ void AddWholeMask(Part part, const uint16_t* mask, float slope, int j,
                                             int half, float (&score)[kScores][4]) {
  static_assert(kScores == 8);
  const auto add = [&](float& s, uint32_t pair, int i) {
    const float2 both = __half22float2(AsHalf2(pair));
    s = fmaf(slope, i == 0 ? both.x : both.y, s);
  };
  if (part != Part::kRecords) {
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(mask + 8 * n + 2 * j);
      add(score[n][2 * half], pair, 0);
      add(score[n][2 * half + 1], pair, 1);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t words[4];
    LoadWords<4, 16>(mask + Shape::kGroup / 8 * (2 * j + i), words);
#pragma unroll
    for (int n = 0; n < kScores; ++n) add(score[n][2 * half + i], words[n / 2], n % 2);
  }
}

// Soft-cap, ALiBi and mask of one query row; scores become log2 of weights. Of positions that the
// row does not see they are anything: there the mask may end.
//   masked  whether the mask has anything to say about the stage
template <typename Shape, int kScores>
__device__ __forceinline__ void ApplyOptions(const PrefillParams& p, const QueryBlock& block,
                                             const StageColumns& at, bool masked,
                                             const BlockRow& row, int j, int half, float unit,
                                             float (&score)[kScores][4]) {
  const kvarn_cuda_decode& call = p.call.attention;
  const float to = p.cap != 0.0F ? unit * p.to_cap : unit;
#pragma unroll
  for (int n = 0; n < kScores; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) score[n][2 * half + i] *= to;
  }
  if (p.cap != 0.0F) {
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        score[n][2 * half + i] = p.cap * Tanh(score[n][2 * half + i]);
      }
    }
  }
  const int x = PositionOf(block, row);
  if (masked) {
    const float slope = SlopeOf(p, row.head) * kLog2E;
    const auto* mask = reinterpret_cast<const uint16_t*>(
        block.mask + static_cast<int64_t>(row.token) * call.mask_token_stride);
    if (p.aligned_mask && at.last <= x) {
      AddWholeMask<Shape>(at.part, mask + at.base, slope, j, half, score);
      return;
    }
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int position = min(ColumnPosition<Shape>(at, n, 2 * j + i), x);
        float& s = score[n][2 * half + i];
        s = fmaf(slope, __half2float(__ushort_as_half(mask[position])), s);
      }
    }
  } else if (call.max_bias > 0.0F && call.mask == nullptr) {
    const float slope = SlopeOf(p, row.head) * kLog2E;
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int behind = ColumnPosition<Shape>(at, n, 2 * j + i) - x;
        float& s = score[n][2 * half + i];
        s = fmaf(slope, static_cast<float>(behind), s);
      }
    }
  }
}

// Moves the maximum of rows that have a score more than `slack` above it.
template <typename Shape>
__device__ __forceinline__ void RaiseMaximum(const float (&unit)[2], float slack,
                                             const StageScores& score, RowState<Shape>* state) {
  float highest[2];
  bool moved = false;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float top = -INFINITY;
#pragma unroll
    for (int n = 0; n < kStageColumnTiles; ++n) {
      top = fmaxf(top, fmaxf(score[n][2 * i], score[n][2 * i + 1]));
    }
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, 2));
    top *= unit[i];
    highest[i] = top > state->top[i] + slack ? top : state->top[i];
    moved = moved || highest[i] != state->top[i];
  }
  if (!__any_sync(0xFFFFFFFFU, moved)) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float shrink = Exp2(state->top[i] - highest[i]);
    state->top[i] = highest[i];
    state->sum[i] *= shrink;
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; ++n) {
      state->out[n][2 * i] *= shrink;
      state->out[n][2 * i + 1] *= shrink;
    }
  }
}

// Weights of a stage by the maxima in use; `sum` gets those of this thread's columns.
template <bool kBf16, typename State>
__device__ __forceinline__ void Exponentials(const float (&unit)[2], const StageScores& score,
                                             const State& state, float (&sum)[2],
                                             StageWeights& weight) {
  sum[0] = sum[1] = 0.0F;
#pragma unroll
  for (int n = 0; n < kStageColumnTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float low = Exp2(fmaf(score[n][2 * i], unit[i], -state.top[i]));
      const float high = Exp2(fmaf(score[n][2 * i + 1], unit[i], -state.top[i]));
      sum[i] += low + high;
      weight[n / 2][n % 2 * 2 + i] = kBf16 ? PackBf16(low, high) : PackHalf(low, high);
    }
  }
}

// Scores of a stage -> weights, with visibility and options; moves the maximum where needed.
//   all_visible  to all rows of the CTA, and with a tile table nothing is added to its scores
//   unit         of this thread's rows: log2 of the weight for a score of 1
template <typename Shape, bool kBf16>
__device__ __forceinline__ void Weigh(const PrefillParams& p, const QueryBlock& block,
                                      const StageColumns& at, bool all_visible, int warp, int lane,
                                      float (&unit)[2], StageScores& score, RowState<Shape>* state,
                                      StageWeights& weight) {
  const int g = lane / 4;
  const int j = lane % 4;
  if (all_visible ? p.general_plain : p.general) {
    const bool masked = p.call.attention.mask != nullptr && !(p.listed && all_visible);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const BlockRow row = RowOf(p, block, warp * kWarpRows + 8 * i + g);
      ApplyOptions<Shape>(p, block, at, masked, row, j, i, unit[i], score);
      unit[i] = 1.0F;
    }
  }
  if (!all_visible && !(p.listed && at.last <= block.high)) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const BlockRow row = RowOf(p, block, warp * kWarpRows + 8 * i + g);
      const Visible visible = VisibleOf<Shape>(p, block, at.part, PositionOf(block, row));
#pragma unroll
      for (int n = 0; n < kStageColumnTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int position = ColumnPosition<Shape>(at, n, 2 * j + c);
          if (position < visible.first || position > visible.last) {
            score[n][2 * i + c] = -INFINITY;
          }
        }
      }
    }
  }
  float sum[2];
  if constexpr (Shape::kAhead) {
    // No maximum on the common path: sums tell whether a weight has outgrown the head room.
    Exponentials<kBf16>(unit, score, *state, sum, weight);
    if (__any_sync(0xFFFFFFFFU, !(fmaxf(sum[0], sum[1]) <= kHeadRoom))) {
      RaiseMaximum<Shape>(unit, 0.0F, score, state);
      Exponentials<kBf16>(unit, score, *state, sum, weight);
    }
  } else {
    RaiseMaximum<Shape>(unit, kSlack, score, state);
    Exponentials<kBf16>(unit, score, *state, sum, weight);
  }
  state->sum[0] += sum[0];
  state->sum[1] += sum[1];
}

// The same of stage kStage of a record tile, with the units of rotated queries.
template <typename Shape, int kStage>
__device__ __forceinline__ void WeighStage(const PrefillParams& p, const QueryBlock& block,
                                           int tile, bool all_visible, const unsigned char* shared,
                                           int warp, int lane, StageScores& score,
                                           RowState<Shape>* state, StageWeights& weight) {
  const auto* units = reinterpret_cast<const float*>(shared + Shape::kUnitAt);
  float unit[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) unit[i] = units[warp * kWarpRows + 8 * i + lane / 4];
  const int position = tile * Shape::kGroup;
  const StageColumns at = {Part::kRecords, position, position + Shape::kGroup - 1,
                           position + kStageColumnTiles * kStage};
  Weigh<Shape, false>(p, block, at, all_visible, warp, lane, unit, score, state, weight);
}

}  // namespace kvarn::cuda
