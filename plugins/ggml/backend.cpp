// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "device.h"
#include "graph_rewrite.h"
#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

struct Backend {
  ggml_backend_t inner = nullptr;
  int n_threads = GGML_DEFAULT_N_THREADS;
  uint64_t n_graphs = 0;
  GraphRewrite rewrite;

  Backend(Device* device, ggml_backend_t inner_in) : inner(inner_in), rewrite(device) {}
  ~Backend() { inner->iface.free(inner); }
};

Backend* BackendOf(ggml_backend_t backend) { return static_cast<Backend*>(backend->context); }

const char* GetName(ggml_backend_t backend) { return DeviceOf(backend->device)->name.c_str(); }

void Free(ggml_backend_t backend) {
  delete BackendOf(backend);
  delete backend;
}

ggml_status GraphCompute(ggml_backend_t backend, ggml_cgraph* graph) {
  Backend* self = BackendOf(backend);
  try {
    if (!self->rewrite.Plan(graph, self->n_threads)) return GGML_STATUS_FAILED;
  } catch (...) {
    LogError("out of memory");
    return GGML_STATUS_ALLOC_FAILED;
  }
  self->rewrite.Apply();
  const ggml_status status = self->inner->iface.graph_compute(self->inner, graph);
  self->rewrite.Restore();
  const kvarn_status kv_status = self->rewrite.TakeError();
  if (kv_status != KVARN_OK) {
    LogError("a KV cache operation failed: %s", kvarn_status_text(kv_status));
    return GGML_STATUS_FAILED;
  }
  // Rarely: 1, 2, 4, 8, ... graphs.
  if (std::has_single_bit(++self->n_graphs)) self->rewrite.LogProgress(self->n_graphs);
  return status;
}

void GraphOptimize(ggml_backend_t backend, ggml_cgraph* graph,
                   ggml_backend_graph_optimize_params* params) {
  ggml_backend_t inner = BackendOf(backend)->inner;
  inner->iface.graph_optimize(inner, graph, params);
}

// A function of the CPU registry by its name.
template <typename Function>
Function InnerFunction(ggml_backend_t inner, const char* name) {
  ggml_backend_reg_t reg = inner->device->reg;
  return reinterpret_cast<Function>(reg->iface.get_proc_address(reg, name));
}

ggml_guid_t Guid() {
  static ggml_guid guid = {0x6b, 0x76, 0x61, 0x72, 0x6e, 0x2d, 0x67, 0x67,
                           0x6d, 0x6c, 0x2d, 0x63, 0x70, 0x75, 0x00, 0x01};
  return &guid;
}

// The registry's functions are called for all its backends.
bool IsCpu(ggml_backend_t backend) { return !DeviceOf(backend->device)->OnGpu(); }

}  // namespace

void SetThreads(ggml_backend_t backend, int n_threads) {
  if (!IsCpu(backend)) return;
  Backend* self = BackendOf(backend);
  self->n_threads = std::max(1, n_threads);
  const auto set =
      InnerFunction<ggml_backend_set_n_threads_t>(self->inner, "ggml_backend_set_n_threads");
  if (set != nullptr) set(self->inner, n_threads);
}

void SetThreadpool(ggml_backend_t backend, struct ggml_threadpool* threadpool) {
  if (!IsCpu(backend)) return;
  ggml_backend_t inner = BackendOf(backend)->inner;
  const auto set = InnerFunction<void (*)(ggml_backend_t, struct ggml_threadpool*)>(
      inner, "ggml_backend_cpu_set_threadpool");
  if (set != nullptr) set(inner, threadpool);
}

void SetAbortCallback(ggml_backend_t backend, ggml_abort_callback callback, void* data) {
  if (!IsCpu(backend)) return;
  ggml_backend_t inner = BackendOf(backend)->inner;
  const auto set =
      InnerFunction<ggml_backend_set_abort_callback_t>(inner, "ggml_backend_set_abort_callback");
  if (set != nullptr) set(inner, callback, data);
}

ggml_backend_t NewCpuBackend(Device* device, const char* params) {
  ggml_backend_t inner = device->inner->iface.init_backend(device->inner, params);
  if (inner == nullptr) return nullptr;
  auto backend = std::make_unique<Backend>(device, inner);
  ggml_backend_i interface = {};
  interface.get_name = GetName;
  interface.free = Free;
  interface.graph_compute = GraphCompute;
  interface.graph_optimize = inner->iface.graph_optimize != nullptr ? GraphOptimize : nullptr;
  return new ggml_backend{Guid(), interface, &device->ggml, backend.release()};
}

}  // namespace kvarn::ggml_plugin
