// SPDX-License-Identifier: Apache-2.0
//
// A record in shared memory becomes fp16 rows: half of a tile of 128 tokens, or a tile of 64.
// Tokens are in *slots*: slot 8 (2T + r) + g is token G/8 * g + 2T + r, where one fragment of codes
// has neighbouring threads. V is stored channel by channel, channel Dv/8 * g + 2T + r in row 8 (2T
// + r)
// + g, so that thread j of a quad gets outputs of channels Dv/4 * j onwards.
#pragma once

#include "cuda/prefill/codes.cuh"
#include "cuda/prefill/shape.h"
#include "cuda/prefill/shared_memory.cuh"

namespace kvarn::cuda {

inline constexpr int kStageTokenTiles = kStageRows / 16;
inline constexpr int kValueItemPairs = 8;

template <int kBits, int kGroup, int kDim>
constexpr RecordLayout LayoutOf(kvarn_role role) {
  return MakeRecordLayout({role, KVARN_BALANCED, KVARN_ORDER_CUDA, kBits, kGroup, kDim});
}
__device__ __forceinline__ __half2 BothOf(uint32_t pair, int which) {
  const uint32_t bits = __byte_perm(pair, 0, which == 0 ? 0x1010 : 0x3232);
  return *reinterpret_cast<const __half2*>(&bits);
}
__device__ __forceinline__ __half2 HalvesOf(uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}
__device__ __forceinline__ uint32_t BitsOf(__half2 halves) {
  return *reinterpret_cast<const uint32_t*>(&halves);
}

// One item of keys: (code - Q/2) a[d] t[g] + z[d] -> to [slot][channel].
template <typename Shape, int kBits, int kStage>
__device__ __forceinline__ void DecodeKeys(const unsigned char* record, int item, int lane,
                                           unsigned char* to) {
  constexpr RecordLayout kLayout = LayoutOf<kBits, Shape::kGroup, Shape::kKeyDim>(KVARN_KEY);
  constexpr int kTokenTiles = Shape::kGroup / 16;
  constexpr int kSteps = Shape::kKeyItemPairs / kTokenTiles;
  constexpr int kPart = Shape::kKeyDim / 4;
  const int g = lane / 4;
  const int j = lane % 4;
  CodeItem<kBits, Shape::kKeyItemPairs, Shape::kKeySteps * kTokenTiles> codes;
  codes.Load(record + kLayout.codes, item, lane);
  uint32_t t[kStageTokenTiles];
#pragma unroll
  for (int i = 0; i < kStageTokenTiles; ++i) {
    const int token = Shape::kGroup / 8 * g + 2 * (kStageTokenTiles * kStage + i);
    t[i] = *reinterpret_cast<const uint32_t*>(record + kLayout.other + 2 * token);
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int step = item * kSteps + i;
    if (Shape::kKeySteps % kSteps != 0 && step >= Shape::kKeySteps) break;
    const int channel = kPart * j + 4 * step;
    unsigned char* at = to + PanelOffset(kStageRows, g, static_cast<unsigned>(channel) / 8) +
                        2 * (static_cast<unsigned>(channel) % 8);  // slot g
    const uint2 a = *reinterpret_cast<const uint2*>(record + kLayout.scale + 2 * channel);
    const uint2 z = *reinterpret_cast<const uint2*>(record + kLayout.zero + 2 * channel);
#pragma unroll
    for (int tile = 0; tile < kStageTokenTiles; ++tile) {
      const int pair = kTokenTiles * i + kStageTokenTiles * kStage + tile;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const __half2 shift =
            __float2half2_rn(CodeFields<kBits>::Base(pair, r) + CodeFields<kBits>::kHalf);
        uint32_t y[2];
#pragma unroll
        for (int kh = 0; kh < 2; ++kh) {
          const __half2 c = __hsub2(codes.At(pair, kh, r), shift);
          y[kh] = BitsOf(__hfma2(__hmul2(c, HalvesOf(kh == 0 ? a.x : a.y)), BothOf(t[tile], r),
                                 HalvesOf(kh == 0 ? z.x : z.y)));
        }
        *reinterpret_cast<uint2*>(at + PanelBytes(8) * (2 * tile + r)) = make_uint2(y[0], y[1]);
      }
    }
  }
}

// One item of values: (code a[g] + z[g]) C[d] -> to [permuted channel][slot].
template <typename Shape, int kBits, int kStage>
__device__ __forceinline__ void DecodeValues(const unsigned char* record, int item, int lane,
                                             unsigned char* to) {
  constexpr RecordLayout kLayout = LayoutOf<kBits, Shape::kGroup, Shape::kValueDim>(KVARN_VALUE);
  constexpr int kChannelTiles = Shape::kValueDim / 16;
  constexpr bool kWhole = kStageTokenTiles * kChannelTiles % kValueItemPairs == 0;
  const int g = lane / 4;
  const int j = lane % 4;
  CodeItem<kBits, kValueItemPairs, Shape::kGroup / 16 * kChannelTiles> codes;
  codes.Load(record + kLayout.codes, item, lane);
  __half2 a[2];
  __half2 z[2];
  unsigned char* at[2];  // channel row g, by kh
#pragma unroll
  for (int pair = 0; pair < kValueItemPairs; ++pair) {
    const auto index = static_cast<unsigned>(kValueItemPairs * item + pair);
    const int step = static_cast<int>(index / kChannelTiles);
    const int tile = static_cast<int>(index % kChannelTiles);
    const int in_stage = step - kStageTokenTiles * kStage;
    if (!kWhole && (in_stage < 0 || in_stage >= kStageTokenTiles)) continue;
    if (pair == 0 || tile == 0) {
      const unsigned char* first = record + 2 * (Shape::kGroup / 4 * j + 2 * step);
      const auto load = [&](size_t field, __half2(&x)[2]) {
        const auto b0 = *reinterpret_cast<const uint32_t*>(first + field);
        const auto b1 = *reinterpret_cast<const uint32_t*>(first + field + Shape::kGroup / 4);
        x[0] = HalvesOf(__byte_perm(b0, b1, 0x5410));
        x[1] = HalvesOf(__byte_perm(b0, b1, 0x7632));
      };
      at[0] = to + PanelOffset(Shape::kValueDim, g, 2 * in_stage) + 4 * j;
      at[1] = to + PanelOffset(Shape::kValueDim, g, 2 * in_stage + 1) + 4 * j;
      load(kLayout.scale, a);
      load(kLayout.zero, z);
    }
    const auto channel_scales = *reinterpret_cast<const uint32_t*>(
        record + kLayout.other + 2 * (Shape::kValueDim / 8 * g + 2 * tile));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const __half2 shift = __float2half2_rn(CodeFields<kBits>::Base(pair, r));
#pragma unroll
      for (int kh = 0; kh < 2; ++kh) {
        const __half2 c = __hsub2(codes.At(pair, kh, r), shift);
        const __half2 v = __hmul2(__hfma2(c, a[kh], z[kh]), BothOf(channel_scales, r));
        *reinterpret_cast<uint32_t*>(at[kh] + PanelBytes(8) * (2 * tile + r)) = BitsOf(v);
      }
    }
  }
}

// Calls body with the bit width as a constant.
template <typename Body>
__device__ __forceinline__ void WithBits(int bits, const Body& body) {
  switch (bits) {
    case 2:
      body.template operator()<2>();
      break;
    case 3:
      body.template operator()<3>();
      break;
    case 4:
      body.template operator()<4>();
      break;
    default:
      body.template operator()<8>();
      break;
  }
}

// This warp's items of the keys of a stage; the warps of the CTA share them.
template <typename Shape, int kStage>
__device__ __forceinline__ void DecodeStageKeys(int bits, const unsigned char* record, int warp,
                                                int lane, unsigned char* to) {
  constexpr int kItems =
      (Shape::kKeySteps * Shape::kGroup / 16 + Shape::kKeyItemPairs - 1) / Shape::kKeyItemPairs;
  WithBits(bits, [&]<int kBits>() {
    if constexpr (kItems <= Shape::kWarps) {
      if (warp < kItems) DecodeKeys<Shape, kBits, kStage>(record, warp, lane, to);
    } else {
#pragma unroll 1
      for (int item = warp; item < kItems; item += Shape::kWarps) {
        DecodeKeys<Shape, kBits, kStage>(record, item, lane, to);
      }
    }
  });
}

// Likewise of the values. Counted from the other end: warps that have less of the keys begin.
template <typename Shape, int kStage>
__device__ __forceinline__ void DecodeStageValues(int bits, const unsigned char* record, int warp,
                                                  int lane, unsigned char* to) {
  constexpr int kPairs = kStageTokenTiles * (Shape::kValueDim / 16);
  constexpr int kFirst = kStage * kPairs / kValueItemPairs;
  constexpr int kEnd = ((kStage + 1) * kPairs + kValueItemPairs - 1) / kValueItemPairs;
  WithBits(bits, [&]<int kBits>() {
#pragma unroll 1
    for (int item = kEnd - Shape::kWarps + warp; item >= kFirst; item -= Shape::kWarps) {
      DecodeValues<Shape, kBits, kStage>(record, item, lane, to);
    }
  });
}

}  // namespace kvarn::cuda
