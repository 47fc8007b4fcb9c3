// SPDX-License-Identifier: Apache-2.0
//
// Lists the tiles that a step seals, in the order of the sequences. One CTA, once a step.
#include <cuda_runtime.h>

#include "cuda/cache/append_params.h"
#include "cuda/common/launch_kernel.h"

namespace kvarn::cuda {
namespace {

constexpr int kThreads = 1024;

// Sum of the values of the threads before this one; `shared` [kThreads].
__device__ int SumBefore(int value, int* shared, int* total) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  __syncthreads();
  for (int distance = 1; distance < kThreads; distance *= 2) {
    const int left = thread >= distance ? shared[thread - distance] : 0;
    __syncthreads();
    shared[thread] += left;
    __syncthreads();
  }
  *total = shared[kThreads - 1];
  const int before = shared[thread] - value;
  __syncthreads();
  return before;
}

__global__ void __launch_bounds__(kThreads)
    AppendPlanKernel(const __grid_constant__ AppendParams p) {
  __shared__ int sums[kThreads];
  int listed = 0;
  for (int base = 0; base < p.call.n_sequences; base += kThreads) {
    const int sequence = base + static_cast<int>(threadIdx.x);
    int first = 0;
    int count = 0;
    if (sequence < p.call.n_sequences) {
      const StepRows step = StepOf(p, sequence);
      first = SealedTiles(p, step.start);
      const int sealed = SealedTiles(p, step.length);
      count = max(sealed - first, 0);
      if (p.call.sealed_rows != nullptr) p.call.sealed_rows[sequence] = sealed * p.group;
    }
    int total = 0;
    const int before = listed + SumBefore(count, sums, &total);
    for (int i = 0; i < count && before + i < p.max_seals; ++i) {
      p.seals[before + i] = make_int2(sequence, first + i);
    }
    listed += total;
  }
  for (int i = listed + static_cast<int>(threadIdx.x); i < p.max_seals; i += kThreads) {
    p.seals[i] = make_int2(-1, 0);
  }
}

}  // namespace

void LaunchAppendPlan(const AppendParams& params, void* stream) {
  LaunchKernel(AppendPlanKernel, dim3(1), kThreads, params, stream);
}

}  // namespace kvarn::cuda
