// SPDX-License-Identifier: Apache-2.0
//
// A device CUDA0 for hosts without a GPU, so that what the plug-in does with one can be tested: the
// host's CPU behind the interface of an asynchronous device whose memory is not the host's. It
// registers itself when the plug-in that it is linked into is loaded, before the plug-in looks.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "ggml-backend-impl.h"

namespace {

template <typename Function>
Function HostFunction(const char* name) {
  for (const char* library : {"libggml.so.0", "libggml-base.so.0"}) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    if (void* symbol = dlsym(handle, name)) return reinterpret_cast<Function>(symbol);
  }
  return nullptr;
}

ggml_backend_dev_t cpu;
ggml_backend_buffer_type_t cpu_type;
ggml_backend_reg reg;
ggml_backend_device device;
ggml_backend_buffer_type type;

// --- memory

const char* TypeName(ggml_backend_buffer_type_t) { return "CUDA0"; }
ggml_backend_buffer_t AllocBuffer(ggml_backend_buffer_type_t, size_t size) {
  ggml_backend_buffer_t buffer = cpu_type->iface.alloc_buffer(cpu_type, size);
  if (buffer != nullptr) buffer->buft = &type;
  return buffer;
}
size_t Alignment(ggml_backend_buffer_type_t) { return cpu_type->iface.get_alignment(cpu_type); }

// --- backend: its context is the CPU backend

ggml_backend_t Inner(ggml_backend_t backend) {
  return static_cast<ggml_backend_t>(backend->context);
}
const char* BackendName(ggml_backend_t) { return "CUDA0"; }
void FreeBackend(ggml_backend_t backend) {
  Inner(backend)->iface.free(Inner(backend));
  delete backend;
}
void SetAsync(ggml_backend_t, ggml_tensor* tensor, const void* data, size_t offset, size_t size) {
  std::memcpy(static_cast<char*>(tensor->data) + offset, data, size);
}
void GetAsync(ggml_backend_t, const ggml_tensor* tensor, void* data, size_t offset, size_t size) {
  std::memcpy(data, static_cast<const char*>(tensor->data) + offset, size);
}
void Synchronize(ggml_backend_t) {}
ggml_status Compute(ggml_backend_t backend, ggml_cgraph* graph) {
  return Inner(backend)->iface.graph_compute(Inner(backend), graph);
}
void Optimize(ggml_backend_t, ggml_cgraph*, ggml_backend_graph_optimize_params*) {
  static bool told = false;
  if (!told) std::fprintf(stderr, "CUDA0 is given graphs to optimize\n");
  told = true;
}
void EventRecord(ggml_backend_t, ggml_backend_event_t) {}
void EventWait(ggml_backend_t, ggml_backend_event_t) {}

// --- device

const char* Name(ggml_backend_dev_t) { return "CUDA0"; }
const char* Description(ggml_backend_dev_t) { return "a CPU that plays a GPU"; }
void Memory(ggml_backend_dev_t, size_t* free, size_t* total) {
  cpu->iface.get_memory(cpu, free, total);
}
enum ggml_backend_dev_type Type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }
void Props(ggml_backend_dev_t dev, ggml_backend_dev_props* props) {
  *props = {};
  props->name = Name(dev);
  props->description = Description(dev);
  props->type = Type(dev);
  props->device_id = "0000:00:00.0";
  Memory(dev, &props->memory_free, &props->memory_total);
  props->caps.async = props->caps.events = true;
}
ggml_backend_t InitBackend(ggml_backend_dev_t dev, const char*) {
  static ggml_guid guid = {'f', 'a', 'k', 'e'};
  ggml_backend_i interface = {};
  interface.get_name = BackendName;
  interface.free = FreeBackend;
  interface.set_tensor_async = SetAsync;
  interface.get_tensor_async = GetAsync;
  interface.synchronize = Synchronize;
  interface.graph_compute = Compute;
  interface.event_record = EventRecord;
  interface.event_wait = EventWait;
  interface.graph_optimize = Optimize;
  ggml_backend_t inner = cpu->iface.init_backend(cpu, nullptr);
  auto set_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
      cpu->reg->iface.get_proc_address(cpu->reg, "ggml_backend_set_n_threads"));
  set_threads(inner, 2);
  return new ggml_backend{&guid, interface, dev, inner};
}
ggml_backend_buffer_type_t BufferType(ggml_backend_dev_t) { return &type; }
bool SupportsOp(ggml_backend_dev_t, const ggml_tensor* op) {
  return cpu->iface.supports_op(cpu, op);
}
// Products of many tokens with weights of the host, as CUDA takes them.
bool OffloadOp(ggml_backend_dev_t, const ggml_tensor* op) {
  return op->op == GGML_OP_MUL_MAT && op->ne[1] >= 32;
}
bool SupportsType(ggml_backend_dev_t, ggml_backend_buffer_type_t other) { return other == &type; }
ggml_backend_event_t EventNew(ggml_backend_dev_t dev) {
  return new ggml_backend_event{dev, &type};  // the context is not looked at
}
void EventFree(ggml_backend_dev_t, ggml_backend_event_t event) { delete event; }
void EventSynchronize(ggml_backend_dev_t, ggml_backend_event_t) {}

const char* RegName(ggml_backend_reg_t) { return "CUDA"; }
size_t DeviceCount(ggml_backend_reg_t) { return 1; }
ggml_backend_dev_t GetDevice(ggml_backend_reg_t, size_t) { return &device; }

__attribute__((constructor)) void Register() {
  using ByType = ggml_backend_dev_t (*)(enum ggml_backend_dev_type);
  using RegisterReg = void (*)(ggml_backend_reg_t);
  const auto by_type = HostFunction<ByType>("ggml_backend_dev_by_type");
  const auto register_reg = HostFunction<RegisterReg>("ggml_backend_register");
  if (by_type == nullptr || register_reg == nullptr) return;
  cpu = by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (cpu == nullptr) return;
  cpu_type = cpu->iface.get_buffer_type(cpu);
  type.iface.get_name = TypeName;
  type.iface.alloc_buffer = AllocBuffer;
  type.iface.get_alignment = Alignment;
  type.device = &device;
  device.iface.get_name = Name;
  device.iface.get_description = Description;
  device.iface.get_memory = Memory;
  device.iface.get_type = Type;
  device.iface.get_props = Props;
  device.iface.init_backend = InitBackend;
  device.iface.get_buffer_type = BufferType;
  device.iface.supports_op = SupportsOp;
  device.iface.supports_buft = SupportsType;
  device.iface.offload_op = OffloadOp;
  device.iface.event_new = EventNew;
  device.iface.event_free = EventFree;
  device.iface.event_synchronize = EventSynchronize;
  device.reg = &reg;
  reg.api_version = GGML_BACKEND_API_VERSION;
  reg.iface.get_name = RegName;
  reg.iface.get_device_count = DeviceCount;
  reg.iface.get_device = GetDevice;
  register_reg(&reg);
}

}  // namespace
