// SPDX-License-Identifier: Apache-2.0
//
// Records on their way from memory into a worker's buffers.
#pragma once

#include <cstdint>

#include "cuda/attention/shape.h"
#include "cuda/attention/worker.cuh"

namespace kvarn::cuda {

// sm_90: one bulk copy a part, one barrier a buffer.
template <typename Shape>
class RecordCopy {
 public:
  __device__ explicit RecordCopy(unsigned char* memory)
      : memory_(static_cast<uint32_t>(__cvta_generic_to_shared(memory))) {
    if (Issues()) {
#pragma unroll
      for (int i = 0; i < 1 + Shape::kValueBuffers; ++i) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(Barrier(i)));
      }
      asm volatile("fence.mbarrier_init.release.cluster;");
    }
    SyncWorker<Shape::kWorkerWarps>();
  }

  // True for the one thread that issues copies.
  __device__ __forceinline__ static bool Issues() {
    return ThreadOfWorker<Shape::kWorkerWarps>() == 0;
  }
  // By that thread. The buffer must have been read by all. Sources are aligned to 16 bytes.
  __device__ __forceinline__ void IssueKey(const void* record) {
    Expect(Barrier(0), Shape::kKey.bytes);
    Copy(Barrier(0), memory_ + Shape::kKeyAt, record, Shape::kKey.bytes);
  }
  __device__ __forceinline__ void IssueValue(const void* record, int buffer) {
    Expect(Barrier(1 + buffer), Shape::kValue.bytes);
    Copy(Barrier(1 + buffer), ValueBuffer(buffer), record, Shape::kValue.bytes);
  }
  __device__ __forceinline__ void WaitKey() {
    Wait(Barrier(0), key_phase_);
    key_phase_ ^= 1U;
  }
  __device__ __forceinline__ void WaitValue(int buffer) {
    Wait(Barrier(1 + buffer), (value_phase_ >> buffer) & 1U);
    value_phase_ ^= 1U << buffer;
  }

 private:
  __device__ __forceinline__ uint32_t Barrier(int index) const {
    return memory_ + static_cast<uint32_t>(Shape::kBarrierAt) + 8U * static_cast<uint32_t>(index);
  }
  __device__ __forceinline__ uint32_t ValueBuffer(int buffer) const {
    return memory_ + static_cast<uint32_t>(Shape::kValueAt + buffer * Shape::kValueBuffer);
  }
  __device__ __forceinline__ void Expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void Copy(uint32_t barrier, uint32_t to, const void* from,
                                       uint32_t bytes) {
    uint64_t policy = 0;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
  }
  __device__ __forceinline__ void Wait(uint32_t barrier, uint32_t phase) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(barrier),
        "r"(phase)
        : "memory");
  }

  uint32_t memory_;
  uint32_t key_phase_ = 0;
  uint32_t value_phase_ = 0;
};

}  // namespace kvarn::cuda
