// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/attention/params.h"

namespace kvarn::cuda {

// What a compiled instance of the decode kernel needs and how it is started.
struct DecodeInstance {
  int key_dim, value_dim, key_bits, value_bits, group, column_tiles;
  bool general;  // soft-cap, window, ALiBi or mask over records
  int n_warps;
  size_t key_bytes, value_bytes;
  cudaError_t (*launch)(const DecodeParams& params, void* stream);
  // By clusters of params.cluster_ctas CTAs, and how many of them the current GPU runs at once.
  // Null where there is no such kernel.
  cudaError_t (*launch_clusters)(const DecodeParams& params, void* stream);
  int (*max_clusters)(int cluster_ctas);
};

void LaunchPlan(const DecodeParams& params, void* stream);
cudaError_t LaunchCombine(const DecodeParams& params, void* stream);

// The smallest compiled instance that serves the call, or null.
const DecodeInstance* FindDecodeInstance(const kvarn_cuda_decode& call);

}  // namespace kvarn::cuda
