// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace kvarn::cuda {

// Starts a kernel that takes one struct. A plain call of the runtime, which the tests can stand in
// for where there is no GPU.
template <typename Params>
void LaunchKernel(void (*kernel)(Params), dim3 grid, int threads, Params params, void* stream,
                  size_t shared_bytes = 0) {
  void* arguments[] = {&params};
  cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid,
                   dim3(static_cast<unsigned>(threads)), arguments, shared_bytes,
                   static_cast<cudaStream_t>(stream));
}

// The same for a kernel that may begin before the one in front of it has ended, and waits for it by
// itself (overlap.cuh).
template <typename Params>
cudaError_t LaunchOverlapping(void (*kernel)(Params), dim3 grid, int threads, Params params,
                              void* stream, size_t shared_bytes = 0) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = 1;
  void* arguments[] = {&params};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments);
}

}  // namespace kvarn::cuda
