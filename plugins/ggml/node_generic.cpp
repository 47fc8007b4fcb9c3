// SPDX-License-Identifier: Apache-2.0
#include "node_generic.h"

#include "counters.h"
#include "f16_windows.h"

namespace kvarn::ggml_plugin {
namespace {

constexpr size_t kGraphMemory = 64 * 1024;  // one node and its bookkeeping

kvarn_status RunOnCopy(const GenericJob& job) {
  ggml_tensor node;
  ggml_tensor sources[GGML_MAX_SRC];
  F16Windows windows(HostMemory());
  const kvarn_status status = windows.Open(job.node, &node, sources);
  if (status != KVARN_OK) return status;
  if (job.runner->Run(&node) != GGML_STATUS_SUCCESS) return KVARN_ERROR_UNSUPPORTED;
  return windows.WriteBack(job.node);
}

}  // namespace

GenericRunner::~GenericRunner() {
  if (backend_ != nullptr) backend_->iface.free(backend_);
}

bool GenericRunner::Prepare() {
  if (backend_ != nullptr) return true;
  backend_ = device_->inner->iface.init_backend(device_->inner, nullptr);
  if (backend_ == nullptr) return false;
  const auto set =
      reinterpret_cast<ggml_backend_set_n_threads_t>(device_->inner->reg->iface.get_proc_address(
          device_->inner->reg, "ggml_backend_set_n_threads"));
  if (set != nullptr) set(backend_, 1);
  return true;
}

ggml_status RunSingleNode(ggml_backend_t backend, ggml_tensor* node, std::vector<uint8_t>* memory) {
  memory->resize(kGraphMemory);
  ggml_init_params params = {};
  params.mem_size = memory->size();
  params.mem_buffer = memory->data();
  params.no_alloc = true;
  ggml_context* context = Host().ggml_init(params);
  if (context == nullptr) return GGML_STATUS_ALLOC_FAILED;
  ggml_cgraph* graph = Host().ggml_new_graph_custom(context, 16, false);
  Host().ggml_graph_add_node(graph, node);
  const ggml_status status = backend->iface.graph_compute(backend, graph);
  Host().ggml_free(context);
  return status;
}

ggml_status GenericRunner::Run(ggml_tensor* node) {
  return RunSingleNode(backend_, node, &graph_memory_);
}

void PlanGeneric(const ggml_tensor* node, GenericRunner* runner, JobError* error, GenericJob* job) {
  job->node = *node;
  job->runner = runner;
  job->error = error;
}

void RunGeneric(ggml_tensor*, int thread, int, void* userdata) {
  if (thread != 0) return;
  const auto* job = static_cast<const GenericJob*>(userdata);
  try {
    job->error->Set(RunOnCopy(*job));
  } catch (...) {
    job->error->Set(KVARN_ERROR_MEMORY);
  }
  counters.generic_nodes.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace kvarn::ggml_plugin
