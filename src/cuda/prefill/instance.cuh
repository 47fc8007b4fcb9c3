// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/prefill/launch.h"
#include "cuda/prefill/prefill_kernel.cuh"

namespace kvarn::cuda {

template <typename Shape>
cudaError_t LaunchPrefill(const PrefillParams& params, int shared_bytes, void* stream) {
  int device = 0;
  int limit = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error == cudaSuccess) {
    // All that there is, so that no later call takes from a captured one.
    error = cudaFuncSetAttribute(PrefillKernel<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 limit);
  }
  if (error != cudaSuccess) return error;
  const auto n_ctas = static_cast<unsigned>(params.n_blocks * params.call.attention.n_kv_heads);
  PrefillKernel<Shape><<<n_ctas, Shape::kThreads, static_cast<size_t>(shared_bytes),
                         static_cast<cudaStream_t>(stream)>>>(params);
  return cudaPeekAtLastError();
}

template <typename Shape>
constexpr PrefillVariant MakePrefillVariant() {
  return {Shape::kRows, Shape::kRecordAt, Shape::kRecordBuffers, LaunchPrefill<Shape>};
}

template <int kKeyDim, int kValueDim, int kGroup>
constexpr PrefillInstance MakePrefillInstance() {
  // Where it has been measured: faster from a context of a few thousand tokens on.
  constexpr bool kHasAhead = kKeyDim == 128 && kValueDim == 128 && kGroup == 128;
  PrefillInstance instance = {kKeyDim,
                              kValueDim,
                              kGroup,
                              MakePrefillVariant<PrefillShape<kKeyDim, kValueDim, kGroup>>(),
                              {}};
  if constexpr (kHasAhead) {
    instance.ahead = MakePrefillVariant<PrefillShape<kKeyDim, kValueDim, kGroup, true>>();
  }
  return instance;
}

}  // namespace kvarn::cuda
