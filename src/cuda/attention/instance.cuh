// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/attention/decode_kernel.cuh"
#include "cuda/attention/launch.h"

namespace kvarn::cuda {

template <typename Shape, bool kGeneral>
cudaError_t LaunchDecode(const DecodeParams& params, void* stream) {
  constexpr auto* kKernel = DecodeKernel<Shape, kGeneral>;
  const cudaError_t error = cudaFuncSetAttribute(
      kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(Shape::kSharedBytes));
  if (error != cudaSuccess) return error;
  kKernel<<<static_cast<unsigned>(params.n_ctas), Shape::kThreads, Shape::kSharedBytes,
            static_cast<cudaStream_t>(stream)>>>(params);
  return cudaPeekAtLastError();
}

// The numbers are those of DecodeShape.
template <int kKeyDim, int kValueDim, int kKeyBits, int kValueBits, int kGroup, int kColumnTiles,
          bool kGeneral>
constexpr DecodeInstance MakeDecodeInstance() {
  using Shape = DecodeShape<kKeyDim, kValueDim, kKeyBits, kValueBits, kGroup, kColumnTiles>;
  return {Shape::kKeyDim,
          Shape::kValueDim,
          Shape::kKeyBits,
          Shape::kValueBits,
          Shape::kGroup,
          Shape::kColumnTiles,
          kGeneral,
          Shape::kWarps,
          Shape::kKey.bytes,
          Shape::kValue.bytes,
          LaunchDecode<Shape, kGeneral>};
}

}  // namespace kvarn::cuda
