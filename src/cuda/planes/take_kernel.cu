// SPDX-License-Identifier: Apache-2.0
//
// Takes the rows of the calls of many layers into the tables of their planes, where that needs
// neither the rows nor the encoder: once a step, so that each layer has only to store them.
#include <cuda_runtime.h>

#include "cuda/common/launch_kernel.h"
#include "cuda/planes/quick_write.cuh"

namespace kvarn::cuda {
namespace {

constexpr int kTakeThreads = 32;

// One warp a plane (x) of a call (y).
__global__ void __launch_bounds__(kTakeThreads)
    PlaneTakeKernel(const __grid_constant__ PlaneTakeCalls calls) {
  __shared__ QuickState state;
  const PlaneWriteParams& p = calls.call[blockIdx.y];
  const auto index = static_cast<int>(blockIdx.x);
  if (index >= p.n_streams * p.n_kv_heads) return;
  const DevicePlane plane(p, index);
  if (p.key) {
    QuickWriter<true, 1>(plane, &state).TakeCall(&plane.Taken());
  } else {
    QuickWriter<false, 1>(plane, &state).TakeCall(&plane.Taken());
  }
}

}  // namespace

void LaunchTake(const PlaneTakeCalls& calls, int n_calls, void* stream) {
  const dim3 grid(MostPlanes(calls, n_calls), static_cast<unsigned>(n_calls));
  LaunchKernel(PlaneTakeKernel, grid, kTakeThreads, calls, stream);
}

}  // namespace kvarn::cuda
