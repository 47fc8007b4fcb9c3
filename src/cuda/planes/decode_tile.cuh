// SPDX-License-Identifier: Apache-2.0
//
// A record becomes a tile of exact rows, as the CPU's DecodeRecord has it: the operations of
// docs/format.md sections 2 and 3 in their order. One CTA of kEncodeThreads threads, a warp a row
// at a time; compiled with --fmad=false.
#pragma once

#include <cuda_fp16.h>

#include "cuda/encode/common.cuh"

namespace kvarn::cuda {

// The code at (lane, depth) of a bit plane in order `cuda`: the place that PackPlane gives it.
template <bool kKey>
__device__ __forceinline__ unsigned CodeOfPlane(const RecordLayout& layout, const uint32_t* plane,
                                                int bits, int lane_index, int m) {
  const int rows = RoundUp(layout.lanes, kFragment);
  const int depth = RoundUp(layout.contraction, kFragment);
  const int per_unit = 16 / bits;
  const int half = bits == 1 ? 4 : per_unit / 2;
  const int g = lane_index / (rows / 8);
  const int in_row = lane_index % (rows / 8);
  const int j = m / (depth / 4);
  const int in_quarter = m % (depth / 4);
  const int s = kKey ? in_quarter / 4 : in_quarter % (depth / 8) / 2;
  const int kh = kKey ? in_quarter / 2 % 2 : in_quarter % 2;
  const int b = kKey ? in_quarter % 2 : in_quarter / (depth / 8);
  const int pair = s * (rows / kFragment) + in_row / 2;
  int in_unit = pair % per_unit;
  int bit = 0;
  int block = 0;
  if (bits == 1) {
    const int upper = in_unit / 8;
    in_unit %= 8;
    block = in_unit / half;
    const int field = 2 * (in_unit % half) + in_row % 2;
    bit = 8 * upper + 2 * (field % 4) + field / 4;
  } else {
    block = in_unit / half;
    bit = bits * (2 * (in_unit % half) + in_row % 2);
  }
  const int word = pair / per_unit * (kCudaUnitBytes / 4) + 4 * (4 * g + j) + 2 * block + kh;
  return plane[word] >> (bit + 16 * b) & ((1U << bits) - 1U);
}

template <bool kKey>
__device__ __forceinline__ unsigned CodeAt(const EncodeParams& p, const uint8_t* record, int token,
                                           int channel) {
  const auto* codes = reinterpret_cast<const uint32_t*>(record);
  const int lane_index = kKey ? token : channel;
  const int m = kKey ? channel : token;
  if (p.bits != 3) return CodeOfPlane<kKey>(p.layout, codes, p.bits, lane_index, m);
  const uint32_t* high = codes + CudaPlaneBytes(2, p.layout.lanes, p.layout.contraction) / 4;
  return CodeOfPlane<kKey>(p.layout, codes, 2, lane_index, m) |
         CodeOfPlane<kKey>(p.layout, high, 1, lane_index, m) << 2;
}

// Rows of a record as fp16 [group][head_dim]; rows that were never written become zeros.
template <bool kKey, int kColumns>
__device__ void DecodeTileOf(const EncodeParams& p, const uint8_t* record,
                             const uint64_t (&written)[2], EncodeShared<kColumns>* shared,
                             uint16_t* rows) {
  const auto* scale = reinterpret_cast<const uint16_t*>(record + p.layout.scale);
  const auto* zero = reinterpret_cast<const uint16_t*>(record + p.layout.zero);
  const auto* other = reinterpret_cast<const uint16_t*>(record + p.layout.other);
  const auto* balance = reinterpret_cast<const int8_t*>(record + p.layout.balance);
  const float centre = static_cast<float>((1 << p.bits) - 1) * 0.5F;
  for (int g = Warp(); g < p.group; g += kWarps) {
    float x[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int d = 32 * c + Lane();
      x[c] = 0.0F;
      if (d >= p.head_dim) continue;
      const auto code = static_cast<float>(CodeAt<kKey>(p, record, g, d));
      if constexpr (kKey) {
        x[c] = (code - centre) * FromHalf(scale[d]) * FromHalf(other[g]) + FromHalf(zero[d]);
      } else {
        x[c] = (code * FromHalf(scale[g]) + FromHalf(zero[g])) * FromHalf(other[d]);
      }
    }
    RotateRow<kColumns, true>(p, &shared->partial[0][Warp()][0], x);
    bool finite = true;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int d = 32 * c + Lane();
      if (kKey && d < p.head_dim) x[c] = x[c] * BalanceScaleOf(-balance[d]);
      finite = finite && (__float_as_uint(x[c]) & 0x7F800000U) != 0x7F800000U;
    }
    const bool keep =
        (written[g / 64] >> (g % 64) & 1U) != 0 && __all_sync(0xFFFFFFFFU, finite ? 1 : 0) != 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int d = 32 * c + Lane();
      if (d >= p.head_dim) continue;
      const float clamped = keep ? Clamp(x[c], -65504.0F, 65504.0F) : 0.0F;
      rows[g * p.head_dim + d] = __half_as_ushort(__float2half_rn(clamped));
    }
  }
}

}  // namespace kvarn::cuda
