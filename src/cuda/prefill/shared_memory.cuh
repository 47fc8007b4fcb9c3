// SPDX-License-Identifier: Apache-2.0
//
// Rows of 16-bit values in shared memory without bank conflicts, and the instructions that move
// them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/common/panels.cuh"

namespace kvarn::cuda {

// Four 8 x 8 matrices; thread i names row i % 8 of matrix i / 8.
__device__ __forceinline__ void LoadMatrices(uint32_t address, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t address, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// The address that a thread names for chunk `chunk + own` (own 0 or 1, chunk even and the same in
// all threads) of its row.
template <int kRows>
class ChunkAddress {
 public:
  __device__ __forceinline__ ChunkAddress(uint32_t matrix, int row, int own)
      : base_(matrix + static_cast<uint32_t>(PanelOffset(kRows, row, own))) {}
  __device__ __forceinline__ uint32_t At(int chunk) const {
    return (base_ ^ static_cast<uint32_t>(16 * (chunk & 7))) +
           static_cast<uint32_t>(PanelBytes(kRows) * (chunk / 8));
  }

 private:
  uint32_t base_;
};

// 16 bytes, or zeros if not `present`; `from` must be a legal address all the same.
__device__ __forceinline__ void CopyAsync(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(present ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kLeft of this thread's groups are under way.
template <int kLeft>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace kvarn::cuda
