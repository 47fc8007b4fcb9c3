// SPDX-License-Identifier: Apache-2.0
//
// Queries in the frame of a record: (q / s) H, as operand B of the score product. Thread (g, j) of
// a warp holds channels D/4 * j onwards of query row g: the depth order of the record's codes.
#pragma once

#include "cuda/attention/params.h"
#include "cuda/attention/ptx.cuh"
#include "cuda/attention/shape.h"

namespace kvarn::cuda {

inline constexpr float kLog2E = 1.44269504088896341F;

struct QueryRow {
  int token;
  int head;
};
__device__ __forceinline__ QueryRow QueryRowAt(const DecodeParams& p, int kv_head, int row) {
  const int token = TokenOfRow(p, row);
  return QueryRow{token, kv_head * p.heads_per_kv + row - token * p.heads_per_kv};
}
// Null for rows that only pad.
__device__ __forceinline__ const unsigned char* QueryPointer(const DecodeParams& p, int sequence,
                                                             int kv_head, int row) {
  if (row >= p.query_rows) return nullptr;
  const QueryRow at = QueryRowAt(p, kv_head, row);
  return static_cast<const unsigned char*>(p.call.query) +
         static_cast<int64_t>(sequence) * p.call.query_sequence_stride +
         static_cast<int64_t>(at.token) * p.call.query_token_stride +
         static_cast<int64_t>(at.head) * p.call.query_head_stride;
}

// x -> x H but for the scale, of rows spread over the four threads of a quad, kPart channels each.
// H = M (x) S(block): block a power of two, each thread holds whole blocks or a power-of-two share.
template <int kPart>
__device__ __forceinline__ void RotateQuad(float (&x)[kPart], const int8_t* small, int lane) {
  constexpr int kDim = 4 * kPart;
  constexpr bool kPower = (kDim & (kDim - 1)) == 0;
  constexpr int kBlock = kPower ? kPart : (kPart & -kPart);  // of the butterflies inside a thread
#pragma unroll
  for (int h = 1; h < kBlock; h *= 2) {
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i];
      const float b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  if constexpr (kPower) {
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2) {
      const float sign = (lane & bit) != 0 ? -1.0F : 1.0F;
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        const float other = __shfl_xor_sync(0xFFFFFFFFU, x[i], bit);
        x[i] = fmaf(sign, x[i], other);
      }
    }
  } else {
    constexpr int kOwnBlocks = kPart / kBlock;  // blocks of this thread
    constexpr int kSmall = 4 * kOwnBlocks;
    float y[kPart] = {};
#pragma unroll 1
    for (int from = 0; from < 4; ++from) {
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        const float other = __shfl_sync(0xFFFFFFFFU, x[i], (lane & ~3) | from);
        const int8_t* row =
            small + (from * kOwnBlocks + i / kBlock) * kSmall + (lane & 3) * kOwnBlocks;
#pragma unroll
        for (int own = 0; own < kOwnBlocks; ++own) {
          y[own * kBlock + i % kBlock] =
              fmaf(static_cast<float>(row[own]), other, y[own * kBlock + i % kBlock]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kPart; ++i) x[i] = y[i];
  }
}

// Queries of one KV head, fp16, normalised by a power of two a row. `balance` [Dk] of the record.
//   operand  [column tile][key step][lane] two words each, shared memory
//   unit     for the columns 2j, 2j+1 of each column tile: what a unit of product means in log2 of
//            the softmax weight
template <typename Shape>
__device__ __forceinline__ void RotateQueries(const DecodeParams& p, int sequence, int kv_head,
                                              const int8_t* balance, uint2* operand, int lane,
                                              float (&unit)[2 * Shape::kColumnTiles]) {
  constexpr int kPart = Shape::kKeyDim / 4;
  const int g = lane / 4;
  const int j = lane % 4;
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    const unsigned char* from = QueryPointer(p, sequence, kv_head, 8 * n + g);
    uint32_t words[kPart / 2] = {};
    if (from != nullptr) LoadWords<kPart / 2, 8>(from + 2 * kPart * j, words);
    float x[kPart];
#pragma unroll
    for (int i = 0; i < kPart / 2; ++i) {
      const float2 pair = ToFloat2(words[i], p.call.dtype == KVARN_BF16);
      const char2 e = *reinterpret_cast<const char2*>(balance + kPart * j + 2 * i);
      x[2 * i] = pair.x * Exp2(static_cast<float>(e.x) * -0.125F);
      x[2 * i + 1] = pair.y * Exp2(static_cast<float>(e.y) * -0.125F);
    }
    RotateQuad(x, p.key_small, lane);
    float top = 0.0F;
#pragma unroll
    for (int i = 0; i < kPart; ++i) top = fmaxf(top, fabsf(x[i]));
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, 2));
    // 2^3 / 2^exponent(top); rows of zeros and of tiny values keep 2^100 at most.
    const int exponent = max(static_cast<int>(__float_as_uint(top) >> 23), 30);
    const float normal = __uint_as_float(static_cast<uint32_t>(127 + 3 + 127 - exponent) << 23);
#pragma unroll
    for (int s = 0; s < Shape::kKeySteps; ++s) {
      operand[(n * Shape::kKeySteps + s) * kWarpSize + lane] =
          make_uint2(PackHalf(x[4 * s] * normal, x[4 * s + 1] * normal),
                     PackHalf(x[4 * s + 2] * normal, x[4 * s + 3] * normal));
    }
    const float row_unit = p.call.scale * kLog2E * p.key_rotation_scale / normal;
    unit[2 * n] = __shfl_sync(0xFFFFFFFFU, row_unit, 8 * j);
    unit[2 * n + 1] = __shfl_sync(0xFFFFFFFFU, row_unit, 8 * j + 4);
  }
}

// Asks for the queries of a KV head before they are needed.
template <typename Shape>
__device__ __forceinline__ void PrefetchQueries(const DecodeParams& p, int sequence, int kv_head,
                                                int lane) {
  constexpr int kLine = 128;  // bytes
  constexpr int kLines = (2 * Shape::kKeyDim + kLine - 1) / kLine;
  for (int i = lane; i < p.query_rows * kLines; i += kWarpSize) {
    const unsigned char* line = QueryPointer(p, sequence, kv_head, i / kLines) + i % kLines * kLine;
    asm volatile("prefetch.global.L1 [%0];" ::"l"(line));
  }
}

// Queries as they are, for exact rows: channels 16 s + 4 j onwards, in the same places.
template <typename Shape>
__device__ __forceinline__ void LoadQueries(const DecodeParams& p, int sequence, int kv_head,
                                            uint2* operand, int lane) {
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    const unsigned char* from = QueryPointer(p, sequence, kv_head, 8 * n + lane / 4);
#pragma unroll
    for (int s = 0; s < Shape::kKeySteps; ++s) {
      uint2 words = make_uint2(0, 0);
      if (from != nullptr) words = *reinterpret_cast<const uint2*>(from + 32 * s + 8 * (lane % 4));
      operand[(n * Shape::kKeySteps + s) * kWarpSize + lane] = words;
    }
  }
}

}  // namespace kvarn::cuda
