// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/attention/cluster/launch.cuh"
#include "cuda/attention/decode_kernel.cuh"
#include "cuda/attention/launch.h"
#include "cuda/attention/wide/kernel.cuh"

namespace kvarn::cuda {

template <typename Shape, bool kGeneral>
constexpr auto* DecodeKernelOf() {
  if constexpr (Shape::kWorkerWarps == 1) {
    return DecodeKernel<Shape, kGeneral>;
  } else {
    return WideDecodeKernel<Shape, kGeneral>;
  }
}

template <typename Shape, bool kGeneral>
cudaError_t LaunchDecode(const DecodeParams& params, void* stream) {
  constexpr auto* kKernel = DecodeKernelOf<Shape, kGeneral>();
  const cudaError_t error = cudaFuncSetAttribute(
      kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(Shape::kSharedBytes));
  if (error != cudaSuccess) return error;
  kKernel<<<static_cast<unsigned>(params.n_ctas), Shape::kThreads, Shape::kSharedBytes,
            static_cast<cudaStream_t>(stream)>>>(params);
  return cudaPeekAtLastError();
}

template <bool kWide, int... kNumbers>
struct ShapeOfNumbers {
  using Type = DecodeShape<kNumbers...>;
};
template <int... kNumbers>
struct ShapeOfNumbers<true, kNumbers...> {
  using Type = WideShape<kNumbers...>;
};
template <bool kWide, int... kNumbers>
using ShapeOf = typename ShapeOfNumbers<kWide, kNumbers...>::Type;

// The numbers are those of DecodeShape and WideShape.
template <int kKeyDim, int kValueDim, int kKeyBits, int kValueBits, int kGroup, int kColumnTiles,
          bool kGeneral>
constexpr DecodeInstance MakeDecodeInstance() {
  // A warpgroup a record where one warp would not do (16 rows: 190 us against 276).
  constexpr bool kWide = kColumnTiles > 2;
  using Shape = ShapeOf<kWide, kKeyDim, kValueDim, kKeyBits, kValueBits, kGroup, kColumnTiles>;
  DecodeInstance made = {Shape::kKeyDim,
                         Shape::kValueDim,
                         Shape::kKeyBits,
                         Shape::kValueBits,
                         Shape::kGroup,
                         Shape::kColumnTiles,
                         kGeneral,
                         Shape::kWarps,
                         Shape::kKey.bytes,
                         Shape::kValue.bytes,
                         LaunchDecode<Shape, kGeneral>,
                         nullptr,
                         nullptr};
  if constexpr (kColumnTiles == 1) {
    made.launch_clusters = LaunchClusters<Shape, kGeneral>;
    made.max_clusters = MaxClusters<Shape, kGeneral>;
  }
  return made;
}

}  // namespace kvarn::cuda
