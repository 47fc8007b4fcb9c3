// SPDX-License-Identifier: Apache-2.0
//
// A device of the plug-in: a device of the host (its CPU, or a CUDA GPU) with another KV cache. One
// per preset and device of the host.
#ifndef KVARN_PLUGINS_GGML_DEVICE_H_
#define KVARN_PLUGINS_GGML_DEVICE_H_

#include <atomic>
#include <string>

#include "host.h"
#include "kv_layout.h"
#include "kv_memory.h"
#include "model_hints.h"

namespace kvarn::ggml_plugin {

// What a device runs on.
struct Engine {
  ggml_backend_dev_t inner = nullptr;  // the host's device
  int gpu = -1;                        // CUDA's number of it, -1: the CPU
  KvMemory* memory = nullptr;          // of its caches
  // Makes a backend (ggml's word for an execution stream) of the device; null if that fails.
  ggml_backend_t (*new_backend)(struct Device* device, const char* params) = nullptr;
};

struct Device : Engine {
  std::string name;
  std::string preset;
  std::string description;
  KvFormat format;
  enum ggml_backend_dev_type type = GGML_BACKEND_DEVICE_TYPE_GPU;
  ggml_backend_buffer_type_t inner_type = nullptr;
  ModelHints hints;
  std::atomic<bool> told_elsewhere{false};  // that caches bypass the device

  // What ggml holds pointers to.
  ggml_backend_device ggml = {};
  // Weights and compute buffers: memory of the inner device, see buffer_type.cpp.
  std::string default_type_name;
  ggml_backend_buffer_type default_type = {};
  // KV caches: not host memory, taken by no other backend, see buffer.cpp.
  std::string kv_type_name;
  ggml_backend_buffer_type kv_type = {};

  Device(const std::string& name, const std::string& preset, const KvFormat& format,
         enum ggml_backend_dev_type type, const Engine& engine, ggml_backend_reg_t reg);
  bool OnGpu() const { return gpu >= 0; }
};

inline Device* DeviceOf(ggml_backend_dev_t device) { return static_cast<Device*>(device->context); }
inline Device* DeviceOf(ggml_backend_buffer_type_t type) {
  return static_cast<Device*>(type->context);
}

// Says once that a cache (the name of one) is kept by another device, and what to do.
void WarnOfCachesElsewhere(Device* device, const char* example);

// buffer_type.cpp
void InitBufferTypes(Device* device);
bool IsDefaultType(ggml_backend_buffer_type_t type);  // of any device of the plug-in
bool IsKvType(ggml_backend_buffer_type_t type);       // of any device of the plug-in

// backend.cpp
ggml_backend_t NewCpuBackend(Device* device, const char* params);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_DEVICE_H_
