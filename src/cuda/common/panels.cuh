// SPDX-License-Identifier: Apache-2.0
//
// Addresses in shared memory, and the order of writes to it before matrix instructions read them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/common/panels.h"

namespace kvarn::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void StoreShared(uint32_t address, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

// What this thread has written to shared memory becomes visible to matrix instructions that read it
// by descriptor, once a barrier has been passed.
__device__ __forceinline__ void FenceForMatrices() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace kvarn::cuda
