// SPDX-License-Identifier: Apache-2.0
//
// SET_ROWS into a cache: rows of the current batch into planes. The K node of a layer writes the V
// rows too when they are ready, so that the planes of both are shared out over the threads at once.
#ifndef KVARN_PLUGINS_GGML_NODE_SET_ROWS_H_
#define KVARN_PLUGINS_GGML_NODE_SET_ROWS_H_

#include "graph_nodes.h"
#include "job_error.h"
#include "node_attention.h"

namespace kvarn::ggml_plugin {

struct SetRowsPart {
  const ggml_tensor* node = nullptr;
  KvTensor* kv = nullptr;
  const ggml_tensor* rows = nullptr;     // F32 [E, n]
  const ggml_tensor* indices = nullptr;  // I64 or I32 [n]: stream * n_rows + row
  const ggml_tensor* query = nullptr;    // F32 [D, T, heads, S], T * S = n, or null (V, or unknown)
  int write = -1;                        // of RecentCopies
  RecentBlock copies;
};

struct SetRowsJob {
  SetRowsPart parts[2];
  int n_parts = 0;
  // Attention that this node begins, or null: it is the last of ours before that one, so that all
  // layers can share one workspace.
  AttentionJob* next_attention = nullptr;
  JobError* error = nullptr;
};

// Fill a job for node `index`; false if its shape needs the generic way. `error` takes what its
// callback meets; null where that is not used.
bool PlanSetRows(const GraphNodes& graph, int index, JobError* error, SetRowsJob* job);

// Callback of the custom node; userdata is the SetRowsJob.
void RunSetRows(ggml_tensor* node, int thread, int n_threads, void* job);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_NODE_SET_ROWS_H_
