// SPDX-License-Identifier: Apache-2.0
//
// Turns the nodes of a graph that touch KV planes into custom nodes in place, and back. The host
// re-uses graphs between decodes, so Restore must follow every Apply.
#ifndef KVARN_PLUGINS_GGML_GRAPH_REWRITE_H_
#define KVARN_PLUGINS_GGML_GRAPH_REWRITE_H_

#include <memory>
#include <vector>

#include "graph_checks.h"
#include "node_attention.h"
#include "node_generic.h"
#include "node_set_rows.h"

namespace kvarn::ggml_plugin {

class GraphRewrite {
 public:
  explicit GraphRewrite(Device* device) : checks_(device), generic_runner_(device) {}

  // Decide what becomes of each node; false (after a message) if the graph cannot be run. Allocates
  // only until the largest graph has been seen.
  bool Plan(ggml_cgraph* graph, int n_threads);
  void Apply();
  void Restore();
  kvarn_status TakeError() { return error_.Take(); }

  // Debug message about the caches of the last graph.
  void LogProgress(uint64_t n_graphs) const;

 private:
  enum class Kind { kSetRows, kDone, kAttention, kGeneric };
  struct Change {
    ggml_tensor* node = nullptr;
    Kind kind = Kind::kDone;
    size_t index = 0;  // into the jobs of this kind
    ggml_op op = GGML_OP_NONE;
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)] = {};
  };

  bool PlanNode(const GraphNodes& graph, int index, int n_threads);
  bool PlanWorkspaces();
  void PlanCopies();
  void Add(ggml_tensor* node, Kind kind, size_t index);

  GraphChecks checks_;
  GenericRunner generic_runner_;
  JobError error_;
  std::vector<Change> changes_;
  std::vector<SetRowsJob> set_rows_;
  std::vector<AttentionJob> attention_;
  std::vector<GenericJob> generic_;
  std::vector<AttentionJob*> own_workspace_;  // begun before the graph runs
  RecentCopies copies_;

  struct FreeDeleter {
    void operator()(void* memory) const;
  };
  std::unique_ptr<uint8_t, FreeDeleter> workspace_;
  size_t workspace_bytes_ = 0;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_GRAPH_REWRITE_H_
