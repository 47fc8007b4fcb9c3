// SPDX-License-Identifier: Apache-2.0
//
// A device of the plug-in: the host's CPU device with another KV cache. One per preset.
#ifndef KVARN_PLUGINS_GGML_DEVICE_H_
#define KVARN_PLUGINS_GGML_DEVICE_H_

#include <string>

#include "host.h"
#include "kv_layout.h"
#include "model_hints.h"

namespace kvarn::ggml_plugin {

struct Device {
  std::string name;
  std::string preset;
  std::string description;
  KvFormat format;
  enum ggml_backend_dev_type type = GGML_BACKEND_DEVICE_TYPE_GPU;
  ggml_backend_dev_t inner = nullptr;  // the host's CPU device
  ggml_backend_buffer_type_t inner_type = nullptr;
  ModelHints hints;

  // What ggml holds pointers to.
  ggml_backend_device ggml = {};
  // Weights and compute buffers: CPU memory, see buffer_type.cpp.
  std::string default_type_name;
  ggml_backend_buffer_type default_type = {};
  // KV caches: not host memory, taken by no other backend, see buffer.cpp.
  std::string kv_type_name;
  ggml_backend_buffer_type kv_type = {};

  Device(const std::string& name, const std::string& preset, const KvFormat& format,
         enum ggml_backend_dev_type type, ggml_backend_dev_t inner, ggml_backend_reg_t reg);
};

inline Device* DeviceOf(ggml_backend_dev_t device) { return static_cast<Device*>(device->context); }
inline Device* DeviceOf(ggml_backend_buffer_type_t type) {
  return static_cast<Device*>(type->context);
}

// buffer_type.cpp
void InitBufferTypes(Device* device);
bool IsDefaultType(ggml_backend_buffer_type_t type);  // of any device of the plug-in
bool IsKvType(ggml_backend_buffer_type_t type);       // of any device of the plug-in

// backend.cpp
ggml_backend_t NewBackend(Device* device, const char* params);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_DEVICE_H_
