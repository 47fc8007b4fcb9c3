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

// d = a b + c, m16n8k8, tf32 operands. Thread (g, j): a rows g and g + 8 at depths j and j + 4, b
// depths j and j + 4 of column g; c and d as above.
__device__ __forceinline__ void MultiplyTf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}
// Nearest tf32 (the unit cuts the low 13 bits off): 11 bits of mantissa, so fp16 and bf16 values
// stay what they are. The conversion instruction is slower than this addition.
__device__ __forceinline__ uint32_t ToTf32(float x) { return __float_as_uint(x) + 0x1000U; }

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
__device__ __forceinline__ uint2 PackHalf4(const float4& x) {
  return make_uint2(PackHalf(x.x, x.y), PackHalf(x.z, x.w));
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

// Loads that stay where they stand: the compiler moves others to where they are used, behind waits
// for other memory.
__device__ __forceinline__ uint2 LoadNow(const uint2* from) {
  uint2 x;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(from));
  return x;
}
__device__ __forceinline__ uint32_t LoadNow(const uint32_t* from) {
  uint32_t x = 0;
  asm volatile("ld.u32 %0, [%1];" : "=r"(x) : "l"(from));
  return x;
}

// As many pairs as there are; the type is looked at once.
template <int kPairs>
__device__ __forceinline__ void ToFloats(const uint32_t (&bits)[kPairs], bool bf16,
                                         float (&to)[2 * kPairs]) {
  if (bf16) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      to[2 * i] = __uint_as_float(bits[i] << 16);
      to[2 * i + 1] = __uint_as_float(bits[i] & 0xFFFF0000U);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float2 pair = __half22float2(AsHalf2(bits[i]));
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  }
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
