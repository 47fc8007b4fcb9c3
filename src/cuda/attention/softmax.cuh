// SPDX-License-Identifier: Apache-2.0
//
// The running softmax of a warp and what a call may add to a score. Thread (g, j) owns columns 2j
// and 2j+1 (query rows) of each column tile; threads of equal j share their columns.
#pragma once

#include "cuda/attention/query.cuh"

namespace kvarn::cuda {

// Weights may grow to this before the maximum is moved: no maximum is taken on the common path.
inline constexpr float kHeadRoom = 64.0F;
inline constexpr float kLowest = -1e30F;

template <int kColumns>
struct RunningSoftmax {
  float top[kColumns];  // log2
  float sum[kColumns];  // of this thread's tokens

  __device__ __forceinline__ void Reset() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) top[c] = kLowest, sum[c] = 0.0F;
  }
  // Over the threads that share a column.
  __device__ __forceinline__ void Join() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) {
        sum[c] += __shfl_xor_sync(0xFFFFFFFFU, sum[c], mask);
      }
    }
  }
};

// What a warp has found out in a piece.
template <typename Shape>
struct PieceState {
  static constexpr int kColumns = 2 * Shape::kColumnTiles;
  float out[Shape::kColumnTiles][Shape::kValueTiles][4];
  RunningSoftmax<kColumns> softmax;

  __device__ __forceinline__ void Reset() {
    softmax.Reset();
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
      for (int tile = 0; tile < Shape::kValueTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][tile][i] = 0.0F;
      }
    }
  }
  __device__ __forceinline__ void Shrink(int c, float by) {
    softmax.sum[c] *= by;
#pragma unroll
    for (int tile = 0; tile < Shape::kValueTiles; ++tile) {
      out[c / 2][tile][c % 2] *= by;
      out[c / 2][tile][c % 2 + 2] *= by;
    }
  }
};

// What each column of this thread may see, and what is added to its scores.
template <int kColumns>
struct ColumnRules {
  int last[kColumns];   // last visible position
  int first[kColumns];  // first visible position
  float slope[kColumns];
  const uint16_t* mask[kColumns];  // additive fp16 by position, or null
  float cap;                       // soft-cap in log2 units, 0 = none
};

__device__ __forceinline__ float AlibiSlope(float max_bias, int n_heads, int head) {
  if (max_bias <= 0.0F) return 1.0F;
  const int power = 1 << (31 - __clz(n_heads));
  const float base = head < power ? -max_bias / static_cast<float>(power)
                                  : -max_bias / 2.0F / static_cast<float>(power);
  const int exponent = head < power ? head + 1 : 2 * (head - power) + 1;
  return exp2f(base * static_cast<float>(exponent));
}

// The rules of query row `row` in column c.
template <int kColumns>
__device__ __forceinline__ void SetRules(const DecodeParams& p, int sequence, int length,
                                         int kv_head, int row, int c,
                                         ColumnRules<kColumns>* rules) {
  const QueryRow at = QueryRowAt(p, kv_head, min(row, p.query_rows - 1));
  rules->last[c] = p.listed_tiles != nullptr ? length - 1 : length - p.call.n_tokens + at.token;
  rules->first[c] = p.call.window > 0 ? rules->last[c] - p.call.window + 1 : 0;
  rules->slope[c] = AlibiSlope(p.call.max_bias, p.call.n_heads, at.head);
  rules->mask[c] = nullptr;
  if (p.call.mask != nullptr) {
    rules->mask[c] = reinterpret_cast<const uint16_t*>(
        reinterpret_cast<const unsigned char*>(p.call.mask) +
        static_cast<int64_t>(sequence) * p.call.mask_sequence_stride +
        static_cast<int64_t>(at.token) * p.call.mask_token_stride);
  }
}

template <int kColumns>
__device__ __forceinline__ ColumnRules<kColumns> RulesOf(const DecodeParams& p, int sequence,
                                                         int length, int kv_head, int first_row,
                                                         int lane) {
  ColumnRules<kColumns> rules = {};
  rules.cap = p.call.softcap * kLog2E;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    SetRules(p, sequence, length, kv_head, first_row + 8 * (c / 2) + 2 * (lane % 4) + c % 2, c,
             &rules);
  }
  return rules;
}

// Score in log2 units -> with soft-cap, if there is one.
template <int kColumns>
__device__ __forceinline__ float SoftCap(const ColumnRules<kColumns>& rules, float score) {
  return rules.cap * tanhf(score / rules.cap);
}
// And with bias, mask and visibility: what a tile that is not plain asks for.
template <int kColumns>
__device__ __forceinline__ float ApplyRules(const ColumnRules<kColumns>& rules, int c, float score,
                                            int position) {
  if (position > rules.last[c] || position < rules.first[c]) return -INFINITY;
  if (rules.mask[c] != nullptr) {
    const float add = __half2float(__ushort_as_half(rules.mask[c][position]));
    score = fmaf(rules.slope[c] * kLog2E, add, score);
  } else if (rules.slope[c] != 1.0F) {
    score = fmaf(rules.slope[c] * kLog2E, static_cast<float>(position - rules.last[c]), score);
  }
  return score;
}

}  // namespace kvarn::cuda
