// SPDX-License-Identifier: Apache-2.0
//
// Any other node on a cache (context shift, casts, attention over odd views): read the rows it
// touches into an F16 copy, run the node on that on one thread of the CPU backend, write changed
// rows back. Correct rather than fast.
#ifndef KVARN_PLUGINS_GGML_NODE_GENERIC_H_
#define KVARN_PLUGINS_GGML_NODE_GENERIC_H_

#include <vector>

#include "graph_nodes.h"
#include "job_error.h"

namespace kvarn::ggml_plugin {

// Runs one node in a graph of its own, whose bookkeeping lies in `memory`.
ggml_status RunSingleNode(ggml_backend_t backend, ggml_tensor* node, std::vector<uint8_t>* memory);

// Owns the CPU backend that runs single nodes.
class GenericRunner {
 public:
  explicit GenericRunner(Device* device) : device_(device) {}
  ~GenericRunner();
  GenericRunner(const GenericRunner&) = delete;
  GenericRunner& operator=(const GenericRunner&) = delete;

  bool Prepare();  // before the first Run; false if there is no backend to be had
  ggml_status Run(ggml_tensor* node);

 private:
  Device* device_;
  ggml_backend_t backend_ = nullptr;
  std::vector<uint8_t> graph_memory_;
};

struct GenericJob {
  ggml_tensor node = {};  // as it was before the rewrite
  GenericRunner* runner = nullptr;
  JobError* error = nullptr;
};

void PlanGeneric(const ggml_tensor* node, GenericRunner* runner, JobError* error, GenericJob* job);

// Callback of the custom node; userdata is the GenericJob. Thread 0 does the work.
void RunGeneric(ggml_tensor* node, int thread, int n_threads, void* job);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_NODE_GENERIC_H_
