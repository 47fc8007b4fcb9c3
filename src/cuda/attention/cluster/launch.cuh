// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "cuda/attention/cluster/kernel.cuh"
#include "cuda/attention/launch.h"

namespace kvarn::cuda {

// Allowed on sm_90 if a kernel asks for more than the portable 8.
template <typename Shape, bool kGeneral>
cudaError_t PrepareClusters() {
  constexpr auto* kKernel = ClusterDecodeKernel<Shape, kGeneral>;
  const cudaError_t error = cudaFuncSetAttribute(
      kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(Shape::kSharedBytes));
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

// Kernels of a CUDA graph come .4 us closer behind one another where an edge between two of them is
// programmatic, even if the first never lets the next begin: H200, CUDA 13. So the kernel waits by
// itself for the one in front of it.
struct ClusterLaunch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};

  ClusterLaunch(int n_ctas, int cluster_ctas, int threads, size_t shared_bytes) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {static_cast<unsigned>(cluster_ctas), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(static_cast<unsigned>(n_ctas));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = attributes;
    config.numAttrs = 2;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;
};

template <typename Shape, bool kGeneral>
cudaError_t LaunchClusters(const DecodeParams& params, void* stream) {
  const cudaError_t error = PrepareClusters<Shape, kGeneral>();
  if (error != cudaSuccess) return error;
  const int clusters = params.call.n_sequences * params.call.n_kv_heads;
  ClusterLaunch launch(clusters * params.cluster_ctas, params.cluster_ctas, Shape::kThreads,
                       Shape::kSharedBytes);
  launch.config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&launch.config, ClusterDecodeKernel<Shape, kGeneral>, params);
}

// Clusters of a size that the current GPU runs at once: its groups of multiprocessors may be of
// different sizes, so that is asked of each GPU, once.
template <typename Shape, bool kGeneral>
int MaxClusters(int cluster_ctas) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices][kMaxClusterCtas + 1];  // answer + 1
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return 0;
  std::atomic<int>& answer = known[device][cluster_ctas];
  const int before = answer.load(std::memory_order_relaxed);
  if (before > 0) return before - 1;
  int clusters = 0;
  ClusterLaunch launch(cluster_ctas, cluster_ctas, Shape::kThreads, Shape::kSharedBytes);
  launch.config.numAttrs = 1;
  if (PrepareClusters<Shape, kGeneral>() != cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&clusters, ClusterDecodeKernel<Shape, kGeneral>,
                                     &launch.config) != cudaSuccess) {
    cudaGetLastError();
    clusters = 0;
  }
  answer.store(clusters + 1, std::memory_order_relaxed);
  return clusters;
}

}  // namespace kvarn::cuda
