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
  if (plane.p.taken != nullptr) {
    if (StoreTaken<kKey, kColumns>(plane, &state->quick)) return;
  } else if (plane.Jobs() == nullptr &&
             QuickWriter<kKey, kColumns>(plane, &state->quick).WriteCall()) {
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

template <bool kKey, int kColumns>
__device__ __noinline__ void TakeAnyRow(DevicePlane plane, WriterState* state) {
  auto* encode = DynamicShared<EncodeShared<kColumns>>();
  PlaneWriter<kKey, kColumns>(plane, encode, state).TakeRow(&plane.Taken());
}

// Rows that open a tile or seal one, one a plane, which the take kernel has left: all layers side
// by side, where each would hold up its own step for as long. One CTA a plane (x) of a call (y).
template <int kColumns>
__global__ void __launch_bounds__(kEncodeThreads, 1)
    PlaneTakeRestKernel(const __grid_constant__ PlaneTakeCalls calls) {
  __shared__ WriterState state;
  const PlaneWriteParams& p = calls.call[blockIdx.y];
  const auto index = static_cast<int>(blockIdx.x);
  if (index >= p.n_streams * p.n_kv_heads) return;
  const DevicePlane plane(p, index);
  if (plane.Taken().took != 0) return;
  if (CountBits(__ballot_sync(0xFFFFFFFFU, plane.PlaceOfCallRow(Lane()) >= 0)) != 1) return;
  if (p.key) {
    TakeAnyRow<true, kColumns>(plane, &state);
  } else {
    TakeAnyRow<false, kColumns>(plane, &state);
  }
}

// Whether the job of a plane, and what is then stored in its slot, change only tiles that have a
// copy.
__device__ inline bool ChangesCopiedTiles(const DevicePlane& plane, const PlaneJob& job, int item) {
  const PlaneWriteParams& p = plane.p;
  const int32_t* places = p.places + static_cast<int64_t>(plane.stream) * p.n_tiles;
  if (!(job.written == RowBits{}) && places[job.tile] < 0) return false;
  if (item >= p.n_slots) return true;
  const CallRows& rows = plane.SlotRows()[item];
  return rows.begin == rows.end || places[plane.Slots()[item].tile] >= 0;
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
  if (p.places != nullptr && ChangesCopiedTiles(plane, job, item) != p.rest) return;
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

template <int kColumns, typename Calls>
void LaunchWithEncoder(void (*kernel)(Calls), const dim3& grid, const Calls& calls, void* stream) {
  constexpr int kBytes = static_cast<int>(sizeof(EncodeShared<kColumns>));
  cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                       cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  LaunchKernel(kernel, grid, kEncodeThreads, calls, stream, kBytes);
}

template <int kColumns>
void PlaneWriteKernels<kColumns>::LaunchWrite(const PlaneWriteCalls& calls, int n_calls,
                                              void* stream) {
  const dim3 grid(MostPlanes(calls, n_calls), static_cast<unsigned>(n_calls));
  LaunchWithEncoder<kColumns>(PlaneWriteKernel<kColumns>, grid, calls, stream);
}

template <int kColumns>
void PlaneWriteKernels<kColumns>::LaunchTakeRest(const PlaneTakeCalls& calls, int n_calls,
                                                 void* stream) {
  const dim3 grid(MostPlanes(calls, n_calls), static_cast<unsigned>(n_calls));
  LaunchWithEncoder<kColumns>(PlaneTakeRestKernel<kColumns>, grid, calls, stream);
}

template <int kColumns>
void PlaneWriteKernels<kColumns>::LaunchJobs(const PlaneWriteCalls& calls, int n_calls,
                                             void* stream) {
  int n_jobs = 0;
  for (int i = 0; i < n_calls; ++i) {
    if (calls.call[i].jobs != nullptr) n_jobs = std::max(n_jobs, calls.call[i].n_jobs);
  }
  if (n_jobs == 0) return;
  const dim3 grid(static_cast<unsigned>(n_jobs), MostPlanes(calls, n_calls),
                  static_cast<unsigned>(n_calls));
  LaunchWithEncoder<kColumns>(PlaneJobsKernel<kColumns>, grid, calls, stream);
}

}  // namespace kvarn::cuda
