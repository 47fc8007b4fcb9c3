// SPDX-License-Identifier: Apache-2.0
//
// The query rows of a warp in shared memory: in the frame of a record, (q / s) H, or as they are.
#pragma once

#include "cuda/common/rotate_row.cuh"
#include "cuda/prefill/block.cuh"
#include "cuda/prefill/shared_memory.cuh"

namespace kvarn::cuda {

// Rows as fp16, each normalised by a power of two. Apart from the loops that it would take
// registers from: it is called once a block unless s changes from tile to tile.
//   balance  [Dk] of a record
//   queries  the CTA's query rows
//   unit     [kRows] what a unit of product means in log2 of the softmax weight
template <typename Shape>
__device__ __noinline__ void RotateQueries(const PrefillParams& p, const QueryBlock& block,
                                           const int8_t* balance, unsigned char* queries,
                                           float* unit) {
  constexpr int kPart = Shape::kKeyDim / 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int j = lane % 4;
  const bool bf16 = p.call.attention.dtype == KVARN_BF16;
#pragma unroll 1
  for (int first = 0; first < kWarpRows; first += 8) {
    const int row = warp * kWarpRows + first + g;
    const BlockRow at = RowOf(p, block, row);
    uint32_t words[kPart / 2] = {};
    if (at.real && p.call.attention.query_dtype == KVARN_FP32) {
      const auto* from = reinterpret_cast<const float4*>(QueryOf(p, block, at) + 4 * kPart * j);
#pragma unroll
      for (int i = 0; i < kPart / 4; ++i) {
        const uint2 pair = PackHalf4(from[i]);
        words[2 * i] = pair.x;
        words[2 * i + 1] = pair.y;
      }
    } else if (at.real) {
      LoadWords<kPart / 2, 8>(QueryOf(p, block, at) + 2 * kPart * j, words);
    }
    float x[kPart];
    ToFloats(words, bf16, x);
#pragma unroll
    for (int i = 0; i < kPart; i += 2) {
      const char2 e = *reinterpret_cast<const char2*>(balance + kPart * j + i);
      x[i] *= Exp2(static_cast<float>(e.x) * -0.125F);
      x[i + 1] *= Exp2(static_cast<float>(e.y) * -0.125F);
    }
    RotateRow<kPart, false>(x, p.key_small, lane);
    float top = 0.0F;
#pragma unroll
    for (int i = 0; i < kPart; ++i) top = fmaxf(top, fabsf(x[i]));
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, 2));
    const float normal = NormalOf(top);
    if (j == 0) {
      unit[row] = p.call.attention.scale * kLog2E * p.key_rotation_scale / normal;
    }
#pragma unroll
    for (int i = 0; i < kPart; i += 4) {
      const int channel = kPart * j + i;
      *reinterpret_cast<uint2*>(queries + PanelOffset(Shape::kRows, row, channel / 8) +
                                2 * (channel % 8)) =
          make_uint2(PackHalf(x[i] * normal, x[i + 1] * normal),
                     PackHalf(x[i + 2] * normal, x[i + 3] * normal));
    }
  }
  FenceForMatrices();
}

template <typename Shape>
__device__ __forceinline__ void LoadQueries(const PrefillParams& p, const QueryBlock& block,
                                            int warp, int lane, unsigned char* queries) {
  constexpr int kPieces = Shape::kKeyDim / 4;  // of 8 bytes
#pragma unroll 4
  for (int i = lane; i < kWarpRows * kPieces; i += 32) {
    const int row = warp * kWarpRows + i / kPieces;
    const int piece = i % kPieces;
    const BlockRow at = RowOf(p, block, row);
    uint2 words = make_uint2(0, 0);
    if (at.real) {
      const unsigned char* from = QueryOf(p, block, at);
      words = p.call.attention.query_dtype == KVARN_FP32
                  ? PackHalf4(reinterpret_cast<const float4*>(from)[piece])
                  : reinterpret_cast<const uint2*>(from)[piece];
    }
    *reinterpret_cast<uint2*>(queries + PanelOffset(Shape::kRows, row, piece / 2) +
                              8 * (piece % 2)) = words;
  }
  FenceForMatrices();
}

}  // namespace kvarn::cuda
