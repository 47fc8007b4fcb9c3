// SPDX-License-Identifier: Apache-2.0
//
// A tile in the registers of a CTA: loading, cleaning, balancing, rotating.
#pragma once

#include <cuda_fp16.h>

#include "cuda/common/ordered_sum.cuh"
#include "cuda/encode/params.h"

namespace kvarn::cuda {

// x[i][c] is token 8 i + warp, channel 32 c + lane; zero beyond the rows and the head dim.
template <int kColumns>
struct TileRegisters {
  float x[kTokensPerThread][kColumns];
};

template <int kColumns>
struct EncodeShared {
  static constexpr int kWidth = 32 * kColumns;
  float partial[6][kWarps][kWidth];  // column partials of up to six sums at once
  float column[8][kWidth];           // results of a column, see the encoders
  float token[4][kMaxGroup];         // results of a token
  uint8_t codes[kMaxGroup][kWidth];
  uint8_t position[kMaxGroup];  // of the i-th row that exists
  int n_rows;
  unsigned long long rows_zeroed;
  unsigned long long saturated;
};

__device__ __forceinline__ float BalanceScaleOf(int exponent) {
  const int i = exponent & 7;
  float eighth = 1.0F;  // 2^(i/8); selects, because a table would live in local memory
  eighth = i == 1 ? 1.0905077326652577F : eighth;
  eighth = i == 2 ? 1.1892071150027210F : eighth;
  eighth = i == 3 ? 1.2968395546510096F : eighth;
  eighth = i == 4 ? 1.4142135623730951F : eighth;
  eighth = i == 5 ? 1.5422108254079407F : eighth;
  eighth = i == 6 ? 1.6817928305074290F : eighth;
  eighth = i == 7 ? 1.8340080864093424F : eighth;
  return eighth * __int_as_float(((exponent >> 3) + 127) << 23);
}

// Positions of the rows that exist, in ascending order.
template <int kColumns>
__device__ void ListRows(const kvarn_cuda_tile& tile, int group, EncodeShared<kColumns>* shared) {
  const int pos = static_cast<int>(threadIdx.x);
  const uint64_t word = pos < 64 ? tile.written[0] : tile.written[1];
  if (pos < group && ((word >> (pos & 63)) & 1U) != 0) {
    const uint64_t below = (uint64_t{1} << (pos & 63)) - 1;
    int rank = __popcll(word & below);
    if (pos >= 64) rank += __popcll(tile.written[0]);
    shared->position[rank] = static_cast<uint8_t>(pos);
  }
  if (pos == 0) {
    shared->n_rows = __popcll(tile.written[0]) + (group > 64 ? __popcll(tile.written[1]) : 0);
    shared->rows_zeroed = 0;
    shared->saturated = 0;
  }
}

// x H, or with kInverse x H^T.
template <int kColumns, bool kInverse = false>
__device__ void RotateRow(const EncodeParams& params, float* row_buffer, float (&x)[kColumns]) {
  const int lane = Lane();
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    if (distance >= params.block) break;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float other = __shfl_xor_sync(0xFFFFFFFFU, x[c], distance);
      x[c] = (lane & distance) != 0 ? other - x[c] : x[c] + other;
    }
  }
#pragma unroll
  for (int step = 1; step < kColumns; step *= 2) {
    if (32 * step >= params.block) break;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if ((c & step) != 0 || c + step >= kColumns) continue;
      const float a = x[c];
      const float b = x[c + step];
      x[c] = a + b;
      x[c + step] = a - b;
    }
  }
  if (params.small != nullptr) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) row_buffer[32 * c + lane] = x[c];
    __syncwarp();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int d = 32 * c + lane;
      if (d >= params.head_dim) continue;
      const int j = d / params.block;
      const int b = d % params.block;
      float sum = 0.0F;
      for (int i = 0; i < params.small_dim; ++i) {
        const auto sign = static_cast<float>(
            params.small[kInverse ? j * params.small_dim + i : i * params.small_dim + j]);
        sum = sum + sign * row_buffer[i * params.block + b];
      }
      x[c] = sum;
    }
    __syncwarp();
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) x[c] = x[c] * params.rotation_scale + 0.0F;
}

// Where the rows of a kvarn_cuda_tile lie. Loaders say besides whether values are still to be
// rounded to fp16.
struct TileRows {
  using Row = const uint16_t*;
  static constexpr bool kToHalf = false;

  const kvarn_cuda_tile& tile;
  bool bf16;

  __device__ __forceinline__ Row At(int position) const {
    const bool later = tile.later_rows != nullptr && position >= tile.later_from;
    return reinterpret_cast<Row>(static_cast<const uint8_t*>(later ? tile.later_rows : tile.rows) +
                                 position * (later ? tile.later_row_stride : tile.row_stride));
  }
  __device__ __forceinline__ float Load(Row row, int d) const {
    return bf16 ? __uint_as_float(static_cast<uint32_t>(row[d]) << 16)
                : __half2float(__ushort_as_half(row[d]));
  }
};

// Loads the tile; a row with a NaN or Inf becomes zeros, other values are clamped to the fp16
// range. `exponents` is the balance, or null.
template <int kColumns, typename Rows>
__device__ void LoadTile(const EncodeParams& params, const Rows& rows, const int8_t* exponents,
                         EncodeShared<kColumns>* shared, TileRegisters<kColumns>* registers) {
  const int n = shared->n_rows;
  float balance[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int d = 32 * c + Lane();
    balance[c] = exponents != nullptr && d < params.head_dim ? BalanceScaleOf(exponents[d]) : 1.0F;
  }
#pragma unroll
  for (int i = 0; i < kTokensPerThread; ++i) {  // all loads first: they overlap
    const int g = 8 * i + Warp();
    const auto row = rows.At(shared->position[g < n ? g : 0]);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int d = 32 * c + Lane();
      registers->x[i][c] = g < n && d < params.head_dim ? rows.Load(row, d) : 0.0F;
    }
  }
#pragma unroll
  for (int i = 0; i < kTokensPerThread; ++i) {
    float(&x)[kColumns] = registers->x[i];
    bool finite = true;
    unsigned saturated = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      finite = finite && (__float_as_uint(x[c]) & 0x7F800000U) != 0x7F800000U;
      saturated += fabsf(x[c]) > 65504.0F ? 1U : 0U;
    }
    const bool keep = __all_sync(0xFFFFFFFFU, finite ? 1 : 0) != 0;
    if (!keep && Lane() == 0) atomicAdd(&shared->rows_zeroed, 1ULL);
    if (keep && saturated != 0) {
      atomicAdd(&shared->saturated, static_cast<unsigned long long>(saturated));
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float clean = fminf(fmaxf(x[c], -65504.0F), 65504.0F);
      if constexpr (Rows::kToHalf) clean = __half2float(__float2half_rn(clean));
      x[c] = keep ? clean * balance[c] : 0.0F;
    }
    RotateRow(params, &shared->partial[0][Warp()][0], x);
  }
}

}  // namespace kvarn::cuda
