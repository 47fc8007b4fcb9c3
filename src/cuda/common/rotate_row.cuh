// SPDX-License-Identifier: Apache-2.0
//
// The Hadamard rotation (docs/format.md section 2) of rows that lie in the four threads of a quad.
#pragma once

#include <cstdint>

namespace kvarn::cuda {

// x -> x H, or with kBack x -> x H^T, but for the scale. Thread j of the quad has channels kPart *
// j onwards. H = M (x) S(block): block a power of two, each thread holds whole blocks or, where
// there is no M, a power-of-two share.
//   small  device, M [4 kPart / block] squared; not read where 4 kPart is a power of two
template <int kPart, bool kBack>
__device__ __forceinline__ void RotateRow(float (&x)[kPart], const int8_t* small, int lane) {
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
    for (int thread = 0; thread < 4; ++thread) {
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        const float other = __shfl_sync(0xFFFFFFFFU, x[i], (lane & ~3) | thread);
        const int from = thread * kOwnBlocks + i / kBlock;
#pragma unroll
        for (int own = 0; own < kOwnBlocks; ++own) {
          const int to = (lane & 3) * kOwnBlocks + own;
          const int8_t sign = kBack ? small[to * kSmall + from] : small[from * kSmall + to];
          y[own * kBlock + i % kBlock] =
              fmaf(static_cast<float>(sign), other, y[own * kBlock + i % kBlock]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kPart; ++i) x[i] = y[i];
  }
}

}  // namespace kvarn::cuda
