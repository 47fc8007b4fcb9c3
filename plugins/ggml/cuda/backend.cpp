// SPDX-License-Identifier: Apache-2.0
#include "cuda/backend.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "buffer.h"
#include "config.h"
#include "cuda/graph_run.h"
#include "graph_nodes.h"
#include "host.h"
#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

struct Backend {
  Device* device;
  ggml_backend_t inner;
  std::unique_ptr<GraphRun> run;

  Backend(Device* device_in, ggml_backend_t inner_in) : device(device_in), inner(inner_in) {}
  ~Backend() {
    run.reset();
    const std::unique_lock<std::shared_mutex> alone(Recordings());
    inner->iface.free(inner);
  }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
};

Backend* BackendOf(ggml_backend_t backend) { return static_cast<Backend*>(backend->context); }

const char* GetName(ggml_backend_t backend) { return BackendOf(backend)->device->name.c_str(); }

void Free(ggml_backend_t backend) {
  delete BackendOf(backend);
  delete backend;
}

// The inner stream waits for ours at the end of each graph.
void Synchronize(ggml_backend_t backend) {
  ggml_backend_t inner = BackendOf(backend)->inner;
  inner->iface.synchronize(inner);
}

ggml_backend_buffer_t BufferOf(const ggml_tensor* tensor) { return Root(tensor)->buffer; }

void SetTensorAsync(ggml_backend_t backend, ggml_tensor* tensor, const void* data, size_t offset,
                    size_t size) {
  ggml_backend_t inner = BackendOf(backend)->inner;
  ggml_backend_buffer_t buffer = BufferOf(tensor);
  if (!IsKvBuffer(buffer)) {
    return inner->iface.set_tensor_async(inner, tensor, data, offset, size);
  }
  inner->iface.synchronize(inner);
  buffer->iface.set_tensor(buffer, tensor, data, offset, size);
}

void GetTensorAsync(ggml_backend_t backend, const ggml_tensor* tensor, void* data, size_t offset,
                    size_t size) {
  ggml_backend_t inner = BackendOf(backend)->inner;
  ggml_backend_buffer_t buffer = BufferOf(tensor);
  if (!IsKvBuffer(buffer)) {
    return inner->iface.get_tensor_async(inner, tensor, data, offset, size);
  }
  inner->iface.synchronize(inner);
  buffer->iface.get_tensor(buffer, tensor, data, offset, size);
}

// With the first graph that runs: before, hosts make backends to measure memory, and hide messages.
void WarnOfReordering(const Device& device) {
  static std::atomic<bool> told{false};
  if (!HostReordersGraphs() || told.exchange(true)) return;
  LogWarn("GGML_CUDA_GRAPH_OPT has no effect with %s: graphs run in pieces there",
          device.name.c_str());
}

ggml_status GraphCompute(ggml_backend_t backend, ggml_cgraph* graph) {
  WarnOfReordering(*BackendOf(backend)->device);
  try {
    return BackendOf(backend)->run->Compute(graph);
  } catch (...) {
    BackendOf(backend)->run->Forget();
    LogError("out of memory");
    return GGML_STATUS_ALLOC_FAILED;
  }
}

void EventRecord(ggml_backend_t backend, ggml_backend_event_t event) {
  ggml_backend_t inner = BackendOf(backend)->inner;
  inner->iface.event_record(inner, event);
}

void EventWait(ggml_backend_t backend, ggml_backend_event_t event) {
  ggml_backend_t inner = BackendOf(backend)->inner;
  inner->iface.event_wait(inner, event);
}

// The rows of a batch have to stay where they are while they are encoded, which is beside
// attention. Hosts would give their place to its output.
void KeepRows(ggml_cgraph* cgraph, ggml_backend_graph_optimize_params* params) {
  const GraphNodes graph = {Host().ggml_graph_nodes(cgraph), Host().ggml_graph_n_nodes(cgraph)};
  for (int i = 0; i < graph.n; ++i) {
    if (graph[i]->op != GGML_OP_SET_ROWS) continue;
    const KvTensor* kv = FindKv(graph[i]);
    if (kv == nullptr) continue;
    if (const ggml_tensor* attention = FindAttention(graph, i, kv)) {
      params->add_alloc_dep(params->user_data, graph[i]->src[0],
                            const_cast<ggml_tensor*>(attention));
    }
  }
}

// Asked to reorder, the CUDA backend remembers between which nodes it may use more streams, and
// aborts after a piece of the graph that has the first of these nodes but not the last: attention.
bool MayOptimize(ggml_backend_t inner) {
  return inner->iface.graph_optimize != nullptr && !HostReordersGraphs();
}

void GraphOptimize(ggml_backend_t backend, ggml_cgraph* graph,
                   ggml_backend_graph_optimize_params* params) {
  ggml_backend_t inner = BackendOf(backend)->inner;
  if (MayOptimize(inner)) inner->iface.graph_optimize(inner, graph, params);
  KeepRows(graph, params);
}

ggml_guid_t Guid() {
  static ggml_guid guid = {0x6b, 0x76, 0x61, 0x72, 0x6e, 0x2d, 0x67, 0x67,
                           0x6d, 0x6c, 0x2d, 0x67, 0x70, 0x75, 0x00, 0x01};
  return &guid;
}

}  // namespace

ggml_backend_t NewGpuBackend(Device* device, const char* params) {
  ggml_backend_t inner = device->inner->iface.init_backend(device->inner, params);
  if (inner == nullptr) return nullptr;
  auto backend = std::make_unique<Backend>(device, inner);
  backend->run = GraphRun::New(device, inner);
  if (backend->run == nullptr) return nullptr;
  ggml_backend_i interface = {};
  interface.get_name = GetName;
  interface.free = Free;
  interface.set_tensor_async = SetTensorAsync;
  interface.get_tensor_async = GetTensorAsync;
  interface.synchronize = Synchronize;
  interface.graph_compute = GraphCompute;
  interface.event_record = EventRecord;
  interface.event_wait = EventWait;
  interface.graph_optimize = GraphOptimize;
  return new ggml_backend{Guid(), interface, &device->ggml, backend.release()};
}

}  // namespace kvarn::ggml_plugin
