// SPDX-License-Identifier: Apache-2.0
//
// Weights of a record times its values for all query rows of a warpgroup, and what it leaves for
// the combine kernel.
#pragma once

#include "cuda/attention/wide/weights.cuh"

namespace kvarn::cuda {

// Adds to the output, in units of 1 / Scale. `meanwhile` is called while the products run.
template <typename Shape, typename Meanwhile>
__device__ __forceinline__ void AccumulateWide(const unsigned char* record, uint32_t weights,
                                               const WideColumns<Shape>& columns, int warp,
                                               int lane, WideState<Shape>* state,
                                               const Meanwhile& meanwhile) {
  constexpr int kSteps = Shape::kGroup / 16;
  constexpr int kTiles = Shape::kValueDim / 16;
  using Codes = WarpCodes<Shape::kValueBits, kTiles>;
  float product[Shape::kValueParts][Shape::kColumnTiles][4];
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    float2 of_warp[kGroupWarps];
    LoadParts(columns, 4 * n + lane % 4, of_warp);
    float2 zero = make_float2(0.0F, 0.0F);  // Pz
#pragma unroll
    for (int w = 0; w < kGroupWarps; ++w) {
      zero.x += of_warp[w].x;
      zero.y += of_warp[w].y;
    }
#pragma unroll
    for (int part = 0; part < Shape::kValueParts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        product[part][n][i] = (i % 2 == 0 ? zero.x : zero.y) * (1.0F / Codes::Scale(part, i / 2));
      }
    }
  }
  MultiplyCodes<Codes, kSteps, Shape::kValueParts>(record + Shape::kValue.codes, weights, warp,
                                                   lane, product, meanwhile);
  const unsigned char* c =
      record + Shape::kValue.other + 4 * kTiles * (lane / 4) + 4 * Shape::kValueParts * warp;
#pragma unroll
  for (int part = 0; part < Shape::kValueParts; ++part) {
    const float2 pair = __half22float2(AsHalf2(reinterpret_cast<const uint32_t*>(c)[part]));
#pragma unroll
    for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& out = state->out[part][n][i];
        out = fmaf(i < 2 ? pair.x : pair.y, product[part][n][i], out);
      }
    }
  }
}

// Maximum, sum and output of a piece. Ends with a barrier of the warpgroup.
template <typename Shape>
__device__ __forceinline__ void StoreWide(const DecodeParams& p, int piece, int warp, int lane,
                                          WideColumns<Shape>* columns,
                                          const WideState<Shape>& state) {
  using Codes = WarpCodes<Shape::kValueBits, Shape::kValueDim / 16>;
  const int64_t slot = PartialSlot(p, piece, WorkerIndex<kGroupWarps>());
  const int channel = Shape::kValueDim / 8 * (lane / 4) + 2 * Shape::kValueParts * warp;
  SyncWorker<kGroupWarps>();  // all have read columns->part
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int row = 8 * n + 2 * (lane % 4) + c;
      float sum = state.sum[n][c];
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, mask);
      if (lane / 4 == 0) (&columns->part[row / 2][warp].x)[c] = sum;
      if (row >= p.query_rows) continue;
      float* out = p.partial_outs + (slot * p.partial_rows + row) * Shape::kValueDim + channel;
#pragma unroll
      for (int part = 0; part < Shape::kValueParts; ++part) {
        reinterpret_cast<float2*>(out)[part] =
            make_float2(state.out[part][n][c] * Codes::Scale(part, 0),
                        state.out[part][n][c + 2] * Codes::Scale(part, 1));
      }
    }
  }
  SyncWorker<kGroupWarps>();
  const int row = kWarpSize * warp + lane;
  if (row < p.query_rows) {
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < kGroupWarps; ++w) sum += (&columns->part[row / 2][w].x)[row % 2];
    p.partial_sums[slot * p.partial_rows + row] = make_float2(columns->top[row], sum);
  }
  SyncWorker<kGroupWarps>();
}

}  // namespace kvarn::cuda
