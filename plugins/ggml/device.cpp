// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <cstring>

#include "buffer.h"
#include "log.h"
#include "node_attention.h"

namespace kvarn::ggml_plugin {
namespace {

// One id for all CPU devices of the plug-in: without --device llama.cpp takes one device per id,
// hence the first of ours only. Those of a GPU have the id of the host's own device for it, which
// comes first.
constexpr char kDeviceId[] = "kvarn-cpu";

const char* GetName(ggml_backend_dev_t dev) { return DeviceOf(dev)->name.c_str(); }

const char* GetDescription(ggml_backend_dev_t dev) { return DeviceOf(dev)->description.c_str(); }

void GetMemory(ggml_backend_dev_t dev, size_t* free, size_t* total) {
  ggml_backend_dev_t inner = DeviceOf(dev)->inner;
  inner->iface.get_memory(inner, free, total);
}

enum ggml_backend_dev_type GetType(ggml_backend_dev_t dev) { return DeviceOf(dev)->type; }

void GetProps(ggml_backend_dev_t dev, ggml_backend_dev_props* props) {
  Device* device = DeviceOf(dev);
  device->inner->iface.get_props(device->inner, props);
  props->name = device->name.c_str();
  props->description = device->description.c_str();
  props->type = device->type;
  if (device->OnGpu()) return;
  props->device_id = kDeviceId;
  props->caps.async = false;
  props->caps.events = false;
}

ggml_backend_t InitBackend(ggml_backend_dev_t dev, const char* params) {
  try {
    return DeviceOf(dev)->new_backend(DeviceOf(dev), params);
  } catch (...) {
    return nullptr;
  }
}

ggml_backend_buffer_type_t GetBufferType(ggml_backend_dev_t dev) {
  return &DeviceOf(dev)->default_type;
}

ggml_backend_buffer_t BufferFromHostPtr(ggml_backend_dev_t dev, void* ptr, size_t size,
                                        size_t max_tensor_size) {
  ggml_backend_dev_t inner = DeviceOf(dev)->inner;
  return inner->iface.buffer_from_host_ptr(inner, ptr, size, max_tensor_size);
}

ggml_backend_buffer_type_t GetHostBufferType(ggml_backend_dev_t dev) {
  ggml_backend_dev_t inner = DeviceOf(dev)->inner;
  return inner->iface.get_host_buffer_type(inner);
}

bool OffloadOp(ggml_backend_dev_t dev, const ggml_tensor* op) {
  ggml_backend_dev_t inner = DeviceOf(dev)->inner;
  return inner->iface.offload_op(inner, op);
}

ggml_backend_event_t EventNew(ggml_backend_dev_t dev) {
  ggml_backend_dev_t inner = DeviceOf(dev)->inner;
  return inner->iface.event_new(inner);  // ggml frees it through the device it names, the inner one
}

// True if the host's loader tries to put a weight into our default type: it then sits in a dummy
// buffer of size 0.
bool IsWeightTrial(const ggml_tensor* op) {
  for (const ggml_tensor* source : op->src) {
    KvIdentity identity;
    if (source != nullptr && source->buffer != nullptr && source->buffer->size == 0 &&
        IsDefaultType(source->buffer->buft) && source->view_src == nullptr &&
        !IdentifyKv(source, &identity)) {
      return true;
    }
  }
  return false;
}

bool TouchesKvBuffer(const ggml_tensor* op) {
  if (IsKvBuffer(Root(op)->buffer)) return true;
  for (const ggml_tensor* source : op->src) {
    if (source != nullptr && IsKvBuffer(Root(source)->buffer)) return true;
  }
  return false;
}

void LearnFromAttention(const ggml_tensor* op, ModelHints* hints) {
  KvIdentity identity;
  if (op->op == GGML_OP_FLASH_ATTN_EXT && op->src[1] != nullptr &&
      IdentifyKv(Root(op->src[1]), &identity) && identity.role == KVARN_KEY) {
    hints->Learn(identity.layer, static_cast<int32_t>(op->src[1]->ne[0]));
  }
}

// The host's scheduler offers attention over caches of the CPU to a GPU, but never gives it: no
// graph shows them.
void LookForCachesElsewhere(const ggml_tensor* op, Device* device) {
  if (!device->OnGpu() || op->op != GGML_OP_FLASH_ATTN_EXT || op->src[1] == nullptr) return;
  const ggml_tensor* keys = Root(op->src[1]);
  KvIdentity identity;
  // Estimates of memory have buffers of no size.
  if (keys->buffer != nullptr && keys->buffer->size > 0 && !IsKvBuffer(keys->buffer) &&
      IdentifyKv(keys, &identity)) {
    WarnOfCachesElsewhere(device, keys->name);
  }
}

bool SupportsOp(ggml_backend_dev_t dev, const ggml_tensor* op) {
  Device* device = DeviceOf(dev);
  try {
    LearnFromAttention(op, &device->hints);
    LookForCachesElsewhere(op, device);
    if (TouchesKvBuffer(op)) {
      LearnHeadDim(op);
      return true;  // the scheduler aborts on a "no" to an op on a pre-allocated tensor
    }
    if (IsWeightTrial(op)) {
      // On the CPU declined, so that the loader goes on to the CPU device's own types: weights lie
      // where the stock CPU device has them, repacked or mapped, once even if tied. Their nodes
      // still come to us, since we take any buffer that the CPU takes.
      device->hints.Observe(op);
      if (!device->OnGpu()) return false;
    }
  } catch (...) {
    return false;
  }
  return device->inner->iface.supports_op(device->inner, op);
}

bool SupportsBufferType(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type) {
  Device* device = DeviceOf(dev);
  if (IsKvType(type)) return type == &device->kv_type;
  if (IsDefaultType(type) && device->OnGpu()) return type == &device->default_type;
  if (IsDefaultType(type)) return !DeviceOf(type)->OnGpu();  // all CPU devices share the host's
  return device->inner->iface.supports_buft(device->inner, type);
}

}  // namespace

void WarnOfCachesElsewhere(Device* device, const char* example) {
  if (device->told_elsewhere.exchange(true)) return;
  // No number: layers that run elsewhere altogether are in graphs that we never see.
  LogWarn(
      "KV caches such as %s are not kept by %s but elsewhere, unquantised: do not use "
      "-nkvo (--no-kv-offload), and offload all layers (-ngl 99) with -fa on",
      example, device->name.c_str());
}

Device::Device(const std::string& name_in, const std::string& preset_in, const KvFormat& format_in,
               enum ggml_backend_dev_type type_in, const Engine& engine, ggml_backend_reg_t reg)
    : Engine(engine),
      name(name_in),
      preset(preset_in),
      description(std::string(inner->iface.get_description(inner)) + ", KV cache " + preset_in),
      format(format_in),
      type(type_in),
      inner_type(inner->iface.get_buffer_type(inner)) {
  const bool on_gpu = OnGpu();
  ggml.iface = {
      /* .get_name             = */ GetName,
      /* .get_description      = */ GetDescription,
      /* .get_memory           = */ GetMemory,
      /* .get_type             = */ GetType,
      /* .get_props            = */ GetProps,
      /* .init_backend         = */ InitBackend,
      /* .get_buffer_type      = */ GetBufferType,
      /* .get_host_buffer_type = */
      on_gpu && inner->iface.get_host_buffer_type != nullptr ? GetHostBufferType : nullptr,
      /* .buffer_from_host_ptr = */
      inner->iface.buffer_from_host_ptr != nullptr ? BufferFromHostPtr : nullptr,
      /* .supports_op          = */ SupportsOp,
      /* .supports_buft        = */ SupportsBufferType,
      /* .offload_op           = */
      on_gpu && inner->iface.offload_op != nullptr ? OffloadOp : nullptr,
      /* .event_new            = */ on_gpu && inner->iface.event_new != nullptr ? EventNew
                                                                                : nullptr,
      /* .event_free           = */ nullptr,
      /* .event_synchronize    = */ nullptr,
  };
  ggml.reg = reg;
  ggml.context = this;
  InitBufferTypes(this);
}

}  // namespace kvarn::ggml_plugin
