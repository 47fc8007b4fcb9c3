// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the plug-in and its registry of devices.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "backend.h"
#include "config.h"
#include "cuda/engines.h"
#include "device.h"

namespace kvarn::ggml_plugin {
namespace {

// Devices named after their preset, behind the one named "kvarn" (KVARN_PRESET).
constexpr const char* kPresets[] = {"kvarn_k4v4_g128", "kvarn_k4v2_g128", "kvarn_k3v3_g128",
                                    "kvarn_k3v2_g128", "kvarn_k2v2_g128", "kvarn_k8v4_g128",
                                    "kvarn_k8v8_g128"};

struct Registry {
  ggml_backend_reg ggml = {};
  std::vector<std::unique_ptr<Device>> devices;
};

// Never destroyed: hosts keep pointers to it until the process ends.
Registry* registry = nullptr;

const char* GetName(ggml_backend_reg_t) { return "kvarn"; }

size_t GetDeviceCount(ggml_backend_reg_t) { return registry->devices.size(); }

ggml_backend_dev_t GetDevice(ggml_backend_reg_t, size_t index) {
  return index < registry->devices.size() ? &registry->devices[index]->ggml : nullptr;
}

void* GetProcAddress(ggml_backend_reg_t, const char* name) {
  if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) {
    return reinterpret_cast<void*>(SetThreads);
  }
  if (std::strcmp(name, "ggml_backend_set_abort_callback") == 0) {
    return reinterpret_cast<void*>(SetAbortCallback);
  }
  if (std::strcmp(name, "ggml_backend_cpu_set_threadpool") == 0) {
    return reinterpret_cast<void*>(SetThreadpool);
  }
  return nullptr;
}

KvFormat FormatOf(const Config& config, const kvarn_preset& preset) {
  KvFormat format;
  format.preset = preset;
  format.mode = config.mode;
  format.tail_rows = config.tail_rows >= 0 ? config.tail_rows : preset.group;
  format.sink_tiles =
      config.sink_tokens >= 0 ? (config.sink_tokens + preset.group - 1) / preset.group : 1;
  format.sliding = config.sliding;
  format.cuda_graphs = config.cuda_graphs;
  return format;
}

void AddDevice(const Config& config, const std::string& name, const std::string& preset_name,
               const Engine& engine, enum ggml_backend_dev_type type) {
  kvarn_preset preset = {};
  if (kvarn_preset_parse(preset_name.c_str(), &preset) != KVARN_OK) return;
  KvFormat format = FormatOf(config, preset);
  format.order = engine.gpu >= 0 ? KVARN_ORDER_CUDA : KVARN_ORDER_CPU;
  registry->devices.push_back(
      std::make_unique<Device>(name, preset_name, format, type, engine, &registry->ggml));
}

// The device named "kvarn" and those named after their preset, with `suffix` behind each name.
void AddDevices(const Config& config, const std::string& suffix, const Engine& engine,
                enum ggml_backend_dev_type type) {
  AddDevice(config, "kvarn" + suffix, config.preset, engine, type);
  for (const char* preset : kPresets) AddDevice(config, preset + suffix, preset, engine, type);
}

ggml_backend_reg_t Init() {
  std::string error;
  Config config;
  ggml_backend_dev_t cpu = nullptr;
  if (registry != nullptr) return &registry->ggml;
  if (!BindHost(&error) || !ReadConfig(&config, &error) || !(cpu = FindCpuDevice(&error))) {
    // Not through the host's logger: llama.cpp's tools print asynchronously and lose what was said
    // just before they exit over the device that is then missing.
    std::fprintf(stderr, "kvarn: not loaded: %s\n", error.c_str());
    return nullptr;
  }
  registry = new Registry;
  registry->ggml.api_version = GGML_BACKEND_API_VERSION;
  registry->ggml.iface = {
      /* .get_name         = */ GetName,
      /* .get_device_count = */ GetDeviceCount,
      /* .get_device       = */ GetDevice,
      /* .get_proc_address = */ GetProcAddress,
  };
  // The first GPU has the plain names, others ":1", ":2"; the CPU then ":cpu".
  const std::vector<Engine> gpus = FindGpuEngines(config);
  for (const Engine& gpu : gpus) {
    const std::string suffix = gpu.gpu == gpus.front().gpu ? "" : ":" + std::to_string(gpu.gpu);
    AddDevices(config, suffix, gpu, GGML_BACKEND_DEVICE_TYPE_GPU);
  }
  // llama.cpp adds integrated GPUs by itself only if there is no other GPU. On a host that has one
  // we must not take layers from it unasked, hence that type; --device takes either.
  const auto type = HostHasGpu() ? GGML_BACKEND_DEVICE_TYPE_IGPU : GGML_BACKEND_DEVICE_TYPE_GPU;
  const Engine engine = {cpu, -1, HostMemory(), NewCpuBackend};
  AddDevices(config, gpus.empty() ? "" : ":cpu", engine, type);
  return &registry->ggml;
}

}  // namespace
}  // namespace kvarn::ggml_plugin

extern "C" {

__attribute__((visibility("default"))) int ggml_backend_score(void) { return 1; }

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
  try {
    return kvarn::ggml_plugin::Init();
  } catch (...) {
    return nullptr;
  }
}

}  // extern "C"
