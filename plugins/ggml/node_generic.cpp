// SPDX-License-Identifier: Apache-2.0
#include "node_generic.h"

#include "counters.h"

namespace kvarn::ggml_plugin {
namespace {

constexpr size_t kGraphMemory = 64 * 1024;  // one node and its bookkeeping

// The F16 copy of the rows of one cache that a node touches.
struct Window {
  KvTensor* kv = nullptr;
  size_t begin = 0, end = 0;  // declared bytes, whole rows
  uint8_t* data = nullptr;

  Window() = default;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() { UnmapPages(data, end - begin); }
};

class Windows {
 public:
  // Make room for what `tensor` covers if it lies in a cache.
  void Cover(const ggml_tensor* tensor) {
    KvTensor* kv = FindKv(tensor);
    if (kv == nullptr) return;
    kv->EnsureLayout();
    const size_t row = kv->row_bytes();
    const size_t begin = tensor->view_offs / row * row;
    const size_t end = (tensor->view_offs + Host().ggml_nbytes(tensor) + row - 1) / row * row;
    Window* window = Find(kv);
    if (window == nullptr) {
      window = &windows_[n_++];
      window->kv = kv;
      window->begin = begin;
      window->end = end;
    }
    window->begin = std::min(window->begin, begin);
    window->end = std::max(window->end, end);
  }

  kvarn_status Fill() {
    for (int i = 0; i < n_; ++i) {
      Window& window = windows_[i];
      window.data = MapZeroPages(window.end - window.begin);
      if (window.data == nullptr) return KVARN_ERROR_MEMORY;
      const kvarn_status status =
          window.kv->Read(window.begin, window.end - window.begin, window.data);
      if (status != KVARN_OK) return status;
    }
    return KVARN_OK;
  }

  // Let a copy of a tensor that lies in a cache point into the window.
  void Redirect(ggml_tensor* tensor) {
    if (KvTensor* kv = FindKv(tensor)) {
      const Window* window = Find(kv);
      tensor->data = window->data + (tensor->view_offs - window->begin);
    }
  }

  kvarn_status WriteBack(KvTensor* kv) {
    const Window* window = Find(kv);
    return kv->Write(window->begin, window->end - window->begin, window->data);
  }

 private:
  Window* Find(const KvTensor* kv) {
    for (int i = 0; i < n_; ++i) {
      if (windows_[i].kv == kv) return &windows_[i];
    }
    return nullptr;
  }

  Window windows_[GGML_MAX_SRC + 1];
  int n_ = 0;
};

kvarn_status RunOnCopy(const GenericJob& job) {
  ggml_tensor node = job.node;
  ggml_tensor sources[GGML_MAX_SRC];
  Windows windows;
  windows.Cover(&node);
  for (const ggml_tensor* source : node.src) {
    if (source != nullptr) windows.Cover(source);
  }
  kvarn_status status = windows.Fill();
  if (status != KVARN_OK) return status;
  for (int i = 0; i < GGML_MAX_SRC; ++i) {
    if (node.src[i] == nullptr) continue;
    sources[i] = *node.src[i];
    windows.Redirect(&sources[i]);
    node.src[i] = &sources[i];
  }
  windows.Redirect(&node);
  if (job.runner->Run(&node) != GGML_STATUS_SUCCESS) return KVARN_ERROR_UNSUPPORTED;
  KvTensor* written = FindKv(&job.node);
  return written == nullptr ? KVARN_OK : windows.WriteBack(written);
}

}  // namespace

GenericRunner::~GenericRunner() {
  if (backend_ != nullptr) backend_->iface.free(backend_);
}

bool GenericRunner::Prepare() {
  if (backend_ != nullptr) return true;
  graph_memory_.resize(kGraphMemory);
  backend_ = device_->inner->iface.init_backend(device_->inner, nullptr);
  if (backend_ == nullptr) return false;
  const auto set =
      reinterpret_cast<ggml_backend_set_n_threads_t>(device_->inner->reg->iface.get_proc_address(
          device_->inner->reg, "ggml_backend_set_n_threads"));
  if (set != nullptr) set(backend_, 1);
  return true;
}

ggml_status GenericRunner::Run(ggml_tensor* node) {
  ggml_init_params params = {};
  params.mem_size = graph_memory_.size();
  params.mem_buffer = graph_memory_.data();
  params.no_alloc = true;
  ggml_context* context = Host().ggml_init(params);
  if (context == nullptr) return GGML_STATUS_ALLOC_FAILED;
  ggml_cgraph* graph = Host().ggml_new_graph_custom(context, 16, false);
  Host().ggml_graph_add_node(graph, node);
  const ggml_status status = backend_->iface.graph_compute(backend_, graph);
  Host().ggml_free(context);
  return status;
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
