// SPDX-License-Identifier: Apache-2.0
//
// The GPUs that the plug-in can keep KV caches on.
#ifndef KVARN_PLUGINS_GGML_CUDA_ENGINES_H_
#define KVARN_PLUGINS_GGML_CUDA_ENGINES_H_

#include <vector>

#include "config.h"
#include "device.h"

namespace kvarn::ggml_plugin {

// The host's CUDA devices in their order, but for those that our kernels do not run on (then a
// message says why). Empty in builds without CUDA (no_engines.cpp).
std::vector<Engine> FindGpuEngines(const Config& config);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_ENGINES_H_
