// SPDX-License-Identifier: Apache-2.0
//
// In the place of engines.cpp in builds without CUDA.
#include "cuda/engines.h"

namespace kvarn::ggml_plugin {

std::vector<Engine> FindGpuEngines(const Config&) { return {}; }

}  // namespace kvarn::ggml_plugin
