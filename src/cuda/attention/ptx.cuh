// SPDX-License-Identifier: Apache-2.0
//
// The instructions that CUDA C++ has no name for.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace kvarn::cuda {

// d = a b + c, m16n8k16, fp32 accumulators. Thread (g, j) = (lane / 4, lane % 4): a rows g and g +
// 8, b and c columns (PTX ISA, "Matrix Fragments for mma.m16n8k16").
__device__ __forceinline__ void MultiplyHalf(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}
__device__ __forceinline__ void MultiplyBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

// Transposes an 8 x 8 matrix of 16-bit values spread over the warp, two of a row in each thread.
__device__ __forceinline__ uint32_t Transpose8x8(uint32_t x) {
  uint32_t y = 0;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

__device__ __forceinline__ float Exp2(float x) {
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t PackHalf(float low, float high) {
  const __half2 packed = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&packed);
}
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 packed = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&packed);
}
__device__ __forceinline__ __half2 AsHalf2(uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}
__device__ __forceinline__ uint32_t MultiplyHalf2(uint32_t a, __half2 b) {
  const __half2 product = __hmul2(AsHalf2(a), b);
  return *reinterpret_cast<const uint32_t*>(&product);
}

// A pair of fp16 or bf16 values as fp32.
__device__ __forceinline__ float2 ToFloat2(uint32_t bits, bool bf16) {
  if (bf16) return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000U));
  return __half22float2(AsHalf2(bits));
}

// kCount consecutive 32-bit words from an address aligned to kAlign bytes.
template <int kCount, int kAlign>
__device__ __forceinline__ void LoadWords(const void* from, uint32_t (&to)[kCount]) {
  if constexpr (kAlign % 16 == 0 && kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const uint4 v = static_cast<const uint4*>(from)[i];
      to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
  } else if constexpr (kAlign % 8 == 0 && kCount % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const uint2 v = static_cast<const uint2*>(from)[i];
      to[2 * i] = v.x, to[2 * i + 1] = v.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = static_cast<const uint32_t*>(from)[i];
  }
}

}  // namespace kvarn::cuda
