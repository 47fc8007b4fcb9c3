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

}  // namespace kvarn::cuda
