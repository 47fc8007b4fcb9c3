// SPDX-License-Identifier: Apache-2.0
//
// Matrix instructions of four warps (sm_90a), which read an operand from shared memory by
// descriptor.
#pragma once

#include "cuda/common/panels.cuh"

namespace kvarn::cuda {

// Descriptor of a matrix in panels (PTX ISA, "Matrix Descriptor"): 128-byte swizzle, 1,024 bytes
// from eight rows to the next. `panel` bytes from panel to panel matter where the columns are not
// the depth.
__device__ __forceinline__ uint64_t Describe(uint32_t address, int panel) {
  constexpr uint64_t kSwizzle128 = 1;
  constexpr uint64_t kEightRows = 1024;
  return static_cast<uint64_t>((address & 0x3FFFFU) >> 4) |
         static_cast<uint64_t>(panel >> 4) << 16 | (kEightRows >> 4) << 32 | kSwizzle128 << 62;
}

// Descriptors of matrices `offset` bytes (a constant, a multiple of 16) further on.
class Descriptor {
 public:
  __device__ __forceinline__ Descriptor(uint32_t address, int panel)
      : low_(static_cast<uint32_t>(Describe(address, panel))),
        high_(static_cast<uint32_t>(Describe(0, 0) >> 32)) {}
  __device__ __forceinline__ uint64_t At(int offset) const {
    return static_cast<uint64_t>(high_) << 32 | (low_ + static_cast<uint32_t>(offset >> 4));
  }

 private:
  uint32_t low_, high_;
};

__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kLeft of the committed groups are under way.
template <int kLeft>
__device__ __forceinline__ void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
__device__ __forceinline__ void EndProducts() {
  CommitProducts();
  WaitProducts<0>();
}

// An instruction on 16-bit operands: KIND and what follows the operands' type, then the operands.
#define KVARN_WGMMA(IS_BF16, KIND, REST, ...)         \
  if constexpr (IS_BF16) {                            \
    asm volatile(KIND "bf16.bf16 " REST __VA_ARGS__); \
  } else {                                            \
    asm volatile(KIND "f16.f16 " REST __VA_ARGS__);   \
  }

// d[0 .. kColumns / 8) += a b: 64 rows, kColumns columns, depth 16; a in registers (rows 16 w
// onwards in warp w of four), b with the depth in columns, or with kTransposed in rows.
template <int kColumns, bool kBf16, bool kTransposed>
__device__ __forceinline__ void MultiplyRegisters(float (*d)[4], const uint32_t (&a)[4],
                                                  uint64_t b) {
  if constexpr (kColumns == 16) {
    KVARN_WGMMA(kBf16, "wgmma.mma_async.sync.aligned.m64n16k16.f32.",
          "{%0, %1, %2, %3, %4, %5, %6, %7}, "
          "{%8, %9, %10, %11}, %12, 1, 1, 1, %13;",
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed ? 1 : 0));
  } else if constexpr (kColumns == 32) {
    KVARN_WGMMA(kBf16, "wgmma.mma_async.sync.aligned.m64n32k16.f32.",
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
          "{%16, %17, %18, %19}, %20, 1, 1, 1, %21;",
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed ? 1 : 0));
  } else if constexpr (kColumns == 48) {
    KVARN_WGMMA(kBf16, "wgmma.mma_async.sync.aligned.m64n48k16.f32.",
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
          "%16, %17, %18, %19, %20, %21, %22, %23}, "
          "{%24, %25, %26, %27}, %28, 1, 1, 1, %29;",
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed ? 1 : 0));
  } else if constexpr (kColumns == 64) {
    KVARN_WGMMA(kBf16, "wgmma.mma_async.sync.aligned.m64n64k16.f32.",
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
          "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
          "{%32, %33, %34, %35}, %36, 1, 1, 1, %37;",
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed ? 1 : 0));
  }
}

#undef KVARN_WGMMA

}  // namespace kvarn::cuda
