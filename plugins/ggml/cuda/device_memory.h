// SPDX-License-Identifier: Apache-2.0
#ifndef KVARN_PLUGINS_GGML_CUDA_DEVICE_MEMORY_H_
#define KVARN_PLUGINS_GGML_CUDA_DEVICE_MEMORY_H_

#include "kv_memory.h"

namespace kvarn::ggml_plugin {

// The memory of a GPU (CUDA's number of it); the same object each time.
KvMemory* MemoryOfGpu(int gpu);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_DEVICE_MEMORY_H_
