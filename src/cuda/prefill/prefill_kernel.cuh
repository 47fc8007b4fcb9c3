// SPDX-License-Identifier: Apache-2.0
//
// Prefill attention: one CTA kRows query rows of one KV head. Records first, in the rotated
// frame, then the exact rows with the same running softmax.
#pragma once

#include "cuda/prefill/attend_exact.cuh"
#include "cuda/prefill/attend_records.cuh"
#include "cuda/prefill/attend_records_ahead.cuh"
#include "cuda/prefill/rotate_outputs.cuh"
#include "cuda/prefill/store.cuh"

namespace kvarn::cuda {

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kCtas)
    PrefillKernel(const __grid_constant__ PrefillParams p) {
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (Shape::kAhead) return;  // never started there
#endif
  extern __shared__ __align__(1024) unsigned char shared[];
  // From one lane, so that the compiler knows it to be the same in all.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // The same for all threads and rarely read: not worth their registers.
  QueryBlock& block = *reinterpret_cast<QueryBlock*>(shared + Shape::kBlockAt);
  static_assert(sizeof(QueryBlock) <= Shape::kRecordAt - Shape::kBlockAt);
  bool found = true;
  if (warp == 0) {
    QueryBlock mine;
    if (p.listed) {
      FindListedBlock<Shape>(p, &mine);
    } else {
      found = FindBlock<Shape>(p, lane, &mine);
    }
    if (lane == 0) block = mine;
  }
  if (__syncthreads_and(static_cast<int>(found)) == 0) return;
  if (p.listed) {
    MarkTiles<Shape>(p, block, shared, warp, lane);
    __syncthreads();
  }
  RowState<Shape> state;
  state.Reset();
  bool any = false;
  if constexpr (Shape::kAhead) {
    any = AttendRecordsAhead<Shape>(p, block, shared, warp, lane, &state);
  } else {
    any = AttendRecords<Shape>(p, block, shared, warp, lane, &state);
  }
  if (any) {
    RotateOutputs<Shape>(p, shared, warp, lane, &state);
  }
  if (p.call.attention.dtype == KVARN_BF16) {
    AttendExact<Shape, true>(p, block, shared, warp, lane, &state);
  } else {
    AttendExact<Shape, false>(p, block, shared, warp, lane, &state);
  }
  StoreOutputs<Shape>(p, block, warp, lane, state);
}

}  // namespace kvarn::cuda
