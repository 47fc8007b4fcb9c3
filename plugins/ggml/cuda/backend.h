// SPDX-License-Identifier: Apache-2.0
//
// A backend (ggml's word for an execution stream) of a GPU device: the host's CUDA backend for
// everything but the nodes on KV caches. Asynchronous like that.
#ifndef KVARN_PLUGINS_GGML_CUDA_BACKEND_H_
#define KVARN_PLUGINS_GGML_CUDA_BACKEND_H_

#include "device.h"

namespace kvarn::ggml_plugin {

ggml_backend_t NewGpuBackend(Device* device, const char* params);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_BACKEND_H_
