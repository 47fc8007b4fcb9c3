// SPDX-License-Identifier: Apache-2.0
#ifndef KVARN_PLUGINS_GGML_CUDA_SUCCEEDED_H_
#define KVARN_PLUGINS_GGML_CUDA_SUCCEEDED_H_

#include <cuda_runtime_api.h>

namespace kvarn::ggml_plugin {

// Whether a call succeeded. CUDA keeps an error until it is asked for, and would give it back as
// that of a later call.
inline bool Succeeded(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess;
}

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_SUCCEEDED_H_
