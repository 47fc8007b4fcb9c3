// SPDX-License-Identifier: Apache-2.0
//
// What a warp leaves for the combine kernel.
#pragma once

#include "cuda/attention/exact.cuh"
#include "cuda/attention/record_values.cuh"

namespace kvarn::cuda {

template <typename Shape>
__device__ __forceinline__ void StoreRecordColumn(const float (&from)[Shape::kValueTiles][4],
                                                  int column, int lane, float* out) {
  out += 2 * Shape::kValueTiles * (lane / 4);
  float x[Shape::kValueTiles][2];
#pragma unroll
  for (int tile = 0; tile < Shape::kValueTiles; ++tile) {
    x[tile][0] = from[tile][column] * RecordOutScale<Shape>(tile, 0);
    x[tile][1] = from[tile][column + 2] * RecordOutScale<Shape>(tile, 1);
  }
  if constexpr (Shape::kValueTiles % 2 == 0) {
#pragma unroll
    for (int tile = 0; tile < Shape::kValueTiles; tile += 2) {
      *reinterpret_cast<float4*>(out + 2 * tile) =
          make_float4(x[tile][0], x[tile][1], x[tile + 1][0], x[tile + 1][1]);
    }
  } else {
#pragma unroll
    for (int tile = 0; tile < Shape::kValueTiles; ++tile) {
      *reinterpret_cast<float2*>(out + 2 * tile) = make_float2(x[tile][0], x[tile][1]);
    }
  }
}

// Threads g and g ^ 1 exchange halves, so that each has two neighbouring channels.
template <typename Shape>
__device__ __forceinline__ void StoreExactColumn(const float (&from)[Shape::kValueTiles][4],
                                                 int column, int lane, bool keep, float* out) {
  const bool odd = (lane / 4) % 2 != 0;
  out += ExactChannel(0, 0, lane & ~4) + (odd ? 2 : 0);
#pragma unroll
  for (int tile = 0; tile < Shape::kValueTiles; ++tile) {
    const float mine = odd ? from[tile][column + 2] : from[tile][column];
    const float sent = odd ? from[tile][column] : from[tile][column + 2];
    const float other = __shfl_xor_sync(0xFFFFFFFFU, sent, 4);
    if (keep) {
      *reinterpret_cast<float2*>(out + 16 * tile) =
          odd ? make_float2(other, mine) : make_float2(mine, other);
    }
  }
}

// What a warp found in a piece: maximum, sum, output in the frame it was computed in.
template <typename Shape, typename Partial>
__device__ __forceinline__ void StorePartial(const DecodeParams& p, const Partial& to, bool exact,
                                             int first_row, int lane, PieceState<Shape>* state) {
  state->softmax.Join();
#pragma unroll
  for (int c = 0; c < PieceState<Shape>::kColumns; ++c) {
    const int row = first_row + 8 * (c / 2) + 2 * (lane % 4) + c % 2;
    const bool keep = row < p.query_rows;
    if (keep && lane / 4 == 0) {
      *to.Sums(row) = make_float2(state->softmax.top[c], state->softmax.sum[c]);
    }
    float* out = to.template Outs<Shape::kValueDim>(row);
    if (exact) {
      StoreExactColumn<Shape>(state->out[c / 2], c % 2, lane, keep, out);
    } else if (keep) {
      StoreRecordColumn<Shape>(state->out[c / 2], c % 2, lane, out);
    }
  }
}

}  // namespace kvarn::cuda
