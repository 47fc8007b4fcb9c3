// SPDX-License-Identifier: Apache-2.0
//
// A worker does one unit of work at a time: a warp, or the four warps of a warpgroup.
#pragma once

#include "cuda/attention/shape.h"

namespace kvarn::cuda {

template <int kWarps>
__device__ __forceinline__ int WorkerIndex() {
  return static_cast<int>(threadIdx.x) / (kWarps * kWarpSize);
}
template <int kWarps>
__device__ __forceinline__ int ThreadOfWorker() {
  return static_cast<int>(threadIdx.x) % (kWarps * kWarpSize);
}

// All threads of a worker. Named barrier 0 is that of the CTA.
template <int kWarps>
__device__ __forceinline__ void SyncWorker() {
  if constexpr (kWarps == 1) {
    __syncwarp();
  } else {
    asm volatile("barrier.sync %0, %1;" ::"r"(1 + WorkerIndex<kWarps>()), "n"(kWarps * kWarpSize)
                 : "memory");
  }
}

// True in all threads of the worker if it is in one.
template <int kWarps>
__device__ __forceinline__ bool AnyOfWorker(bool mine) {
  uint32_t any = 0;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\n"
      "barrier.red.or.pred q, %2, %3, p;\nselp.u32 %0, 1, 0, q;\n}"
      : "=r"(any)
      : "r"(mine ? 1U : 0U), "r"(1 + WorkerIndex<kWarps>()), "n"(kWarps * kWarpSize)
      : "memory");
  return any != 0;
}

}  // namespace kvarn::cuda
