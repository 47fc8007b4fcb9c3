// SPDX-License-Identifier: Apache-2.0
//
// Outputs of records, back to the plain frame.
#pragma once

#include "cuda/common/rotate_row.cuh"
#include "cuda/prefill/weights.cuh"

namespace kvarn::cuda {

// Chunk of a row of outputs, so that rows and a quad's quarters of a row use different banks.
__device__ __forceinline__ int Scattered(int row, int chunk) {
  return chunk ^ ((row ^ (chunk >> 3 << 1)) & 7);
}

// From the frame of records to the plain one: channels 8n + 2j + i in column 2j + i of tile n.
// Uses the place of K and V.
template <typename Shape>
__device__ __forceinline__ void RotateOutputs(const PrefillParams& p, unsigned char* shared,
                                              int warp, int lane, RowState<Shape>* state) {
  constexpr int kPart = Shape::kValueDim / 4;
  const int g = lane / 4;
  const int j = lane % 4;
  unsigned char* row = shared + Shape::kKeyAt + (8 * warp + g) * Shape::kScratchPitch;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float x[kPart];
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; ++n) {
      x[n] = state->out[n][2 * i];
      x[Shape::kValueTiles + n] = state->out[n][2 * i + 1];
    }
    RotateRow<kPart, true>(x, p.value_small, lane);
    __syncwarp();
#pragma unroll
    for (int c = 0; c < kPart; c += 4) {
      *reinterpret_cast<float4*>(row + 16 * Scattered(g, (kPart * j + c) / 4)) =
          make_float4(x[c], x[c + 1], x[c + 2], x[c + 3]);
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; ++n) {
      const float2 y =
          *reinterpret_cast<const float2*>(row + 16 * Scattered(g, 2 * n + j / 2) + 8 * (j % 2));
      state->out[n][2 * i] = y.x * p.value_rotation_scale;
      state->out[n][2 * i + 1] = y.y * p.value_rotation_scale;
    }
  }
  __syncthreads();
}

}  // namespace kvarn::cuda
