// SPDX-License-Identifier: Apache-2.0
//
// Queries in the frame of a record: (q / s) H, as operand B of the score product. Thread (g, j) of
// a warp holds channels D/4 * j onwards of query row g: the depth order of the record's codes.
#pragma once

#include "cuda/attention/params.h"
#include "cuda/attention/ptx.cuh"
#include "cuda/attention/shape.h"
#include "cuda/common/rotate_row.cuh"

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

// Words of s that a lane keeps.
template <typename Shape>
constexpr int BalanceParts() {
  return (Shape::kKeyDim / 4 + kWarpSize - 1) / kWarpSize;
}

// Whether the s of a record is the one whose words this lane kept; vote over the warp.
template <typename Shape>
__device__ __forceinline__ bool HasBalance(const uint32_t* balance,
                                           const uint32_t (&kept)[BalanceParts<Shape>()],
                                           int lane) {
  bool same = true;
#pragma unroll
  for (int i = 0; i < BalanceParts<Shape>(); ++i) {
    const int w = kWarpSize * i + lane;
    same = same && (w >= Shape::kKeyDim / 4 || balance[w] == kept[i]);
  }
  return same;
}

// 1 / s of a record as fp32 [Dk] in shared memory; `words` are this lane's words of s.
template <typename Shape>
__device__ __forceinline__ void InverseBalance(const uint32_t (&words)[BalanceParts<Shape>()],
                                               float* to, int lane) {
#pragma unroll
  for (int part = 0; part < BalanceParts<Shape>(); ++part) {
    const int i = part * kWarpSize + lane;
    if (i >= Shape::kKeyDim / 4) break;
    float inverse[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const auto e = static_cast<int8_t>(words[part] >> (8 * b));
      inverse[b] = Exp2(static_cast<float>(e) * -0.125F);
    }
    reinterpret_cast<float4*>(to)[i] = make_float4(inverse[0], inverse[1], inverse[2], inverse[3]);
  }
  __syncwarp();
}

// Channels D/4 * j onwards of query row first_row + g; rows that only pad are zeros. Queries are
// fp32 only where a call has options.
template <typename Shape, bool kGeneral>
__device__ __forceinline__ void LoadQueryPart(const DecodeParams& p, int sequence, int kv_head,
                                              int first_row, int lane,
                                              uint32_t (&words)[Shape::kKeyDim / 8]) {
  const int row = min(first_row + lane / 4, p.query_rows - 1);
  const unsigned char* query = QueryPointer(p, sequence, kv_head, row);
  const bool pad = first_row + lane / 4 > row;
  if (kGeneral && p.call.query_dtype == KVARN_FP32) {
    const auto* floats = reinterpret_cast<const float4*>(query + Shape::kKeyDim * (lane % 4));
#pragma unroll
    for (int i = 0; i < Shape::kKeyDim / 16; ++i) {
      const uint2 pair = PackHalf4(floats[i]);
      words[2 * i] = pad ? 0 : pair.x;
      words[2 * i + 1] = pad ? 0 : pair.y;
    }
    return;
  }
  const auto* from = reinterpret_cast<const uint2*>(query + Shape::kKeyDim / 2 * (lane % 4));
#pragma unroll
  for (int i = 0; i < Shape::kKeyDim / 16; ++i) {
    const uint2 pair = LoadNow(from + i);
    words[2 * i] = pad ? 0 : pair.x;
    words[2 * i + 1] = pad ? 0 : pair.y;
  }
}

// A power of two that takes rows whose largest magnitude is `top` to [2^3, 2^4) : products with
// scales stay inside fp16. Rows of zeros and of tiny values keep 2^100 at most.
__device__ __forceinline__ float NormalOf(float top) {
  const int exponent = max(static_cast<int>(__float_as_uint(top) >> 23), 30);
  return __uint_as_float(static_cast<uint32_t>(127 + 3 + 127 - exponent) << 23);
}

// x -> x H but for the scale, D a power of two: H over the 16 channels that a key step has in a
// quad's threads by matrix instructions, then butterflies over the steps. y [step][4] is as the
// instructions leave it: thread (g, j) has query rows 2j, 2j + 1 at channels D/4 * (g / 2) + 4 step
// + g % 2 and, in the upper half, that + 2.
template <int kSteps>
__device__ __forceinline__ void RotateSteps(const float (&x)[4 * kSteps], int lane,
                                            float (&y)[kSteps][4]) {
  const int g = lane / 4;
  constexpr uint32_t kOne = 0x3F800000U;
  constexpr uint32_t kSign = 0x80000000U;
  const uint32_t even = kOne ^ (static_cast<uint32_t>(__popc((g / 2) & (lane % 4))) << 31);
  const uint32_t odd = even ^ (static_cast<uint32_t>(g) << 31);
  const uint32_t even_rows[4] = {even, even, even, even ^ kSign};
  const uint32_t odd_rows[4] = {odd, odd, odd, odd ^ kSign};
  const float zero[4] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    MultiplyTf32(y[s], even_rows, ToTf32(x[4 * s]), ToTf32(x[4 * s + 2]), zero);
    MultiplyTf32(y[s], odd_rows, ToTf32(x[4 * s + 1]), ToTf32(x[4 * s + 3]), y[s]);
  }
#pragma unroll
  for (int h = 1; h < kSteps; h *= 2) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if ((s & h) != 0) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float a = y[s][i];
        const float b = y[s + h][i];
        y[s][i] = a + b;
        y[s + h][i] = a - b;
      }
    }
  }
}

// Queries of one KV head from first_row on, fp16, normalised by a power of two a row.
//   balance  exponents of s [Dk] of the record, aligned to 4
//   operand  shared memory of the warp [column tile][key step][lane], written
//   inverse  shared memory of the warp [Dk], overwritten
//   kept     words of s of this lane, to compare with those of the next record
//   unit     for the columns 2j, 2j+1 of each column tile: what a unit of product means in log2 of
//            the softmax weight
template <typename Shape, bool kGeneral>
__device__ __forceinline__ void RotateQueries(const DecodeParams& p, int sequence, int kv_head,
                                              int first_row, const uint32_t* balance,
                                              uint2* operand, float* inverse, int lane,
                                              uint32_t (&kept)[BalanceParts<Shape>()],
                                              float (&unit)[2 * Shape::kColumnTiles]) {
  constexpr int kSteps = Shape::kKeySteps;
  const float plain_unit = p.call.scale * kLog2E * p.key_rotation_scale;
#pragma unroll
  for (int part = 0; part < BalanceParts<Shape>(); ++part) {
    const int i = part * kWarpSize + lane;
    if (i < Shape::kKeyDim / 4) kept[part] = LoadNow(balance + i);
  }
  uint32_t words[2 * kSteps];
  LoadQueryPart<Shape, kGeneral>(p, sequence, kv_head, first_row, lane, words);
  InverseBalance<Shape>(kept, inverse, lane);
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    uint2* to = operand + n * kSteps * kWarpSize + lane;
    if (n > 0) LoadQueryPart<Shape, kGeneral>(p, sequence, kv_head, first_row + 8 * n, lane, words);
    float x[4 * kSteps];
    ToFloats(words, p.call.dtype == KVARN_BF16, x);
#pragma unroll
    for (int i = 0; i < 4 * kSteps; i += 4) {
      const float4 by = *reinterpret_cast<const float4*>(inverse + 4 * kSteps * (lane % 4) + i);
      x[i] *= by.x;
      x[i + 1] *= by.y;
      x[i + 2] *= by.z;
      x[i + 3] *= by.w;
    }
    if constexpr ((kSteps & (kSteps - 1)) == 0) {
      float y[kSteps][4];
      RotateSteps<kSteps>(x, lane, y);
      float normal[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float top = 0.0F;
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          top = fmaxf(top, fmaxf(fabsf(y[s][c]), fabsf(y[s][c + 2])));
        }
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) {
          top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, mask));
        }
        normal[c] = NormalOf(top);
        unit[2 * n + c] = plain_unit / normal[c];
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        to[s * kWarpSize] =
            make_uint2(Transpose8x8(PackHalf(y[s][0] * normal[0], y[s][1] * normal[1])),
                       Transpose8x8(PackHalf(y[s][2] * normal[0], y[s][3] * normal[1])));
      }
    } else {
      RotateRow<4 * kSteps, false>(x, p.key_small, lane);
      float top = 0.0F;
#pragma unroll
      for (int i = 0; i < 4 * kSteps; ++i) top = fmaxf(top, fabsf(x[i]));
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, 2));
      const float normal = NormalOf(top);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        to[s * kWarpSize] = make_uint2(PackHalf(x[4 * s] * normal, x[4 * s + 1] * normal),
                                       PackHalf(x[4 * s + 2] * normal, x[4 * s + 3] * normal));
      }
      const float row_unit = plain_unit / normal;
      const int j = lane % 4;
      unit[2 * n] = __shfl_sync(0xFFFFFFFFU, row_unit, 8 * j);
      unit[2 * n + 1] = __shfl_sync(0xFFFFFFFFU, row_unit, 8 * j + 4);
    }
  }
}

// Queries as they are, for exact rows: channels 16 s + 4 j onwards, in the same places.
template <typename Shape, bool kGeneral>
__device__ __forceinline__ void LoadQueries(const DecodeParams& p, int sequence, int kv_head,
                                            int first_row, uint2* operand, int lane) {
#pragma unroll
  for (int n = 0; n < Shape::kColumnTiles; ++n) {
    const unsigned char* from = QueryPointer(p, sequence, kv_head, first_row + 8 * n + lane / 4);
#pragma unroll
    for (int s = 0; s < Shape::kKeySteps; ++s) {
      uint2 words = make_uint2(0, 0);
      if (from != nullptr) {
        words = kGeneral && p.call.query_dtype == KVARN_FP32
                    ? PackHalf4(*reinterpret_cast<const float4*>(from + 64 * s + 16 * (lane % 4)))
                    : *reinterpret_cast<const uint2*>(from + 32 * s + 8 * (lane % 4));
      }
      operand[(n * Shape::kKeySteps + s) * kWarpSize + lane] = words;
    }
  }
}

}  // namespace kvarn::cuda
