// SPDX-License-Identifier: Apache-2.0
//
// Rows of 16-bit values in shared memory without bank conflicts, and the instructions that move
// them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace kvarn::cuda {

// 16-byte chunk `chunk` of row `row` lies in this chunk of the row. Eight rows at one chunk, or a
// quad's threads at chunks a quarter of the row apart, use different banks. A permutation of each
// group of eight chunks.
__host__ __device__ constexpr int Swizzle(int row, int chunk) {
  return chunk ^ (row & 7) ^ ((chunk >> 3) << 1 & 7);
}

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

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
// all threads) of its row, for a row that starts at `row_address` and has `row` % 8 = lane % 8.
class ChunkAddress {
 public:
  __device__ __forceinline__ ChunkAddress(uint32_t row_address, int row, int own)
      : base_(row_address + static_cast<uint32_t>(((row & 7) ^ own) << 4)) {}
  __device__ __forceinline__ uint32_t At(int chunk) const {
    const int mixed = Swizzle(0, chunk);
    return (base_ ^ static_cast<uint32_t>((mixed & 7) << 4)) +
           static_cast<uint32_t>((mixed & ~7) << 4);
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
