// SPDX-License-Identifier: Apache-2.0
#ifndef KVARN_PLUGINS_GGML_CUDA_DEVICE_MEMORY_H_
#define KVARN_PLUGINS_GGML_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include "kv_memory.h"

namespace kvarn::ggml_plugin {

// The memory of a GPU (CUDA's number of it); the same object each time.
KvMemory* MemoryOfGpu(int gpu);

// Whoever touches the memory of a GPU's caches from now on waits for `done`, which is recorded
// behind kernels on them: a host clears caches without waiting for the graphs that it has begun.
void Follow(int gpu, cudaEvent_t done);
void Unfollow(int gpu, cudaEvent_t done);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_DEVICE_MEMORY_H_
