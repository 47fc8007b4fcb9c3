// SPDX-License-Identifier: Apache-2.0
//
// The kernels that write the rows of a call into planes, for K and V alike.
#pragma once

#include <algorithm>

#include "cuda/common/dynamic_shared.cuh"
#include "cuda/common/launch_kernel.h"
#include "cuda/common/small_matrix.h"
#include "cuda/planes/quick_write.cuh"
#include "cuda/planes/writer.cuh"

namespace kvarn::cuda {

// Apart: a cold instruction cache makes jumps over so much code dear.
template <bool kKey, int kColumns>
__device__ __noinline__ void WriteAnyRows(DevicePlane plane, WriterState* state) {
  auto* encode = DynamicShared<EncodeShared<kColumns>>();
  PlaneWriter<kKey, kColumns>(plane, encode, state).WriteCall();
}

template <bool kKey, int kColumns>
__device__ __forceinline__ void WritePlane(const DevicePlane& plane, WriterState* state) {
  if (plane.Jobs() == nullptr && QuickWriter<kKey, kColumns>(plane, &state->quick).WriteCall()) {
    return;
  }
  WriteAnyRows<kKey, kColumns>(plane, state);
}

// One CTA a plane (x) of a call (y).
template <int kColumns>
__global__ void __launch_bounds__(kEncodeThreads, 1)
    PlaneWriteKernel(const __grid_constant__ PlaneWriteCalls calls) {
  __shared__ WriterState state;
  const PlaneWriteParams& p = calls.call[blockIdx.y];
  const auto index = static_cast<int>(blockIdx.x);
  if (index >= p.n_streams * p.n_kv_heads) return;
  const DevicePlane plane(p, index);
  if (p.key) {
    WritePlane<true, kColumns>(plane, &state);
  } else {
    WritePlane<false, kColumns>(plane, &state);
  }
}

// What the first kernel has left: one CTA a job (x) of a plane (y) of a call (z). That of a slot
// also stores the rows which the slot holds in the end, once its memory has been read.
template <int kColumns>
__global__ void __launch_bounds__(kEncodeThreads, kColumns <= 4 ? 2 : 1)
    PlaneJobsKernel(const __grid_constant__ PlaneWriteCalls calls) {
  __shared__ int8_t balance[kMaxCudaHeadDim];
  const PlaneWriteParams& p = calls.call[blockIdx.z];
  const auto item = static_cast<int>(blockIdx.x);
  const auto index = static_cast<int>(blockIdx.y);
  if (p.jobs == nullptr || item >= p.n_jobs || index >= p.n_streams * p.n_kv_heads) return;
  const DevicePlane plane(p, index);
  const PlaneJob job = plane.Jobs()[item];
  if (!(job.written == RowBits{})) {
    auto* encode = DynamicShared<EncodeShared<kColumns>>();
    if (p.key) {
      EncodeJob<true, kColumns>(plane, job, balance, encode);
    } else {
      EncodeJob<false, kColumns>(plane, job, balance, encode);
    }
  }
  if (item < p.n_slots) StoreRows<kColumns>(plane, plane.SlotRows()[item], item);
}

template <int kColumns>
void LaunchPlaneWrite(const PlaneWriteCalls& calls, int n_calls, void* stream) {
  constexpr int kBytes = static_cast<int>(sizeof(EncodeShared<kColumns>));
  int n_planes = 0;
  int n_jobs = 0;
  for (int i = 0; i < n_calls; ++i) {
    const PlaneWriteParams& p = calls.call[i];
    n_planes = std::max(n_planes, p.n_streams * p.n_kv_heads);
    if (p.jobs != nullptr) n_jobs = std::max(n_jobs, p.n_jobs);
  }
  const auto launch = [&](void (*kernel)(PlaneWriteCalls), const dim3& grid) {
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                         cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    LaunchKernel(kernel, grid, kEncodeThreads, calls, stream, kBytes);
  };
  const auto planes = static_cast<unsigned>(n_planes);
  const auto z = static_cast<unsigned>(n_calls);
  launch(PlaneWriteKernel<kColumns>, dim3(planes, z));
  if (n_jobs > 0) launch(PlaneJobsKernel<kColumns>, dim3(static_cast<unsigned>(n_jobs), planes, z));
}

}  // namespace kvarn::cuda
