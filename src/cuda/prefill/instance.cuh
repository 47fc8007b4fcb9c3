// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/prefill/launch.h"
#include "cuda/prefill/prefill_kernel.cuh"

namespace kvarn::cuda {

template <typename Shape>
cudaError_t LaunchPrefill(const PrefillParams& params, int shared_bytes, void* stream) {
  // The most that any bit widths need, so that no later call takes from a captured one.
  constexpr int kMost =
      Shape::kRecordAt +
      static_cast<int>(LayoutOf<8, Shape::kGroup, Shape::kKeyDim>(KVARN_KEY).bytes +
                       LayoutOf<8, Shape::kGroup, Shape::kValueDim>(KVARN_VALUE).bytes);
  int device = 0;
  int limit = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(PrefillKernel<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 limit < kMost ? limit : kMost);
  }
  if (error != cudaSuccess) return error;
  const auto n_ctas = static_cast<unsigned>(params.n_blocks * params.call.attention.n_kv_heads);
  PrefillKernel<Shape><<<n_ctas, kPrefillThreads, static_cast<size_t>(shared_bytes),
                         static_cast<cudaStream_t>(stream)>>>(params);
  return cudaPeekAtLastError();
}

template <typename Shape>
constexpr PrefillInstance MakePrefillInstance() {
  return {Shape::kKeyDim, Shape::kValueDim, Shape::kGroup, Shape::kRecordAt, LaunchPrefill<Shape>};
}

}  // namespace kvarn::cuda
