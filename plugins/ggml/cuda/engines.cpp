// SPDX-License-Identifier: Apache-2.0
#include "cuda/engines.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "cuda/backend.h"
#include "cuda/device_memory.h"
#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

constexpr int kLeastMajor = 9;  // of the attention kernels

// What we call on the host's backends and devices.
bool HasInterfaces(ggml_backend_dev_t device) {
  return device->reg->api_version == GGML_BACKEND_API_VERSION &&
         Host().ggml_graph_view != nullptr && device->iface.event_new != nullptr &&
         device->iface.event_free != nullptr;
}

}  // namespace

std::vector<Engine> FindGpuEngines(const Config& config) {
  std::vector<Engine> engines;
  for (int gpu = 0;; ++gpu) {
    const std::string name = "CUDA" + std::to_string(gpu);
    ggml_backend_dev_t device = Host().ggml_backend_dev_by_name(name.c_str());
    if (device == nullptr) return engines;
    int major = 0;
    if (config.mode != KVARN_BALANCED) {
      LogWarn("%s is not used: KVARN_MODE=published runs on the CPU only", name.c_str());
    } else if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) !=
               cudaSuccess) {
      LogWarn("%s is not used: this build's CUDA runtime needs a newer driver", name.c_str());
    } else if (major != kLeastMajor) {
      LogWarn("%s is not used: it has compute capability %d.x, the kernels of this build need 9.x",
              name.c_str(), major);
    } else if (!HasInterfaces(device)) {
      LogWarn("%s is not used: the host has no views of graphs, or its CUDA backend no events",
              name.c_str());
    } else {
      engines.push_back({device, gpu, MemoryOfGpu(gpu), NewGpuBackend});
    }
  }
}

}  // namespace kvarn::ggml_plugin
