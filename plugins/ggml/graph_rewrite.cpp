// SPDX-License-Identifier: Apache-2.0
#include "graph_rewrite.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "counters.h"
#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

constexpr size_t kAlignment = 64;

void RunNothing(ggml_tensor*, int, int, void*) {}

}  // namespace

void GraphRewrite::FreeDeleter::operator()(void* memory) const { std::free(memory); }

void GraphRewrite::Add(ggml_tensor* node, Kind kind, size_t index) {
  Change change;
  change.node = node;
  change.kind = kind;
  change.index = index;
  change.op = node->op;
  std::memcpy(change.op_params, node->op_params, sizeof(change.op_params));
  changes_.push_back(change);
}

bool GraphRewrite::PlanNode(const GraphNodes& graph, int index, int n_threads) {
  ggml_tensor* node = graph[index];
  if (node->op == GGML_OP_SET_ROWS) {
    if (!set_rows_.empty() && set_rows_.back().parts[1].node == node) {
      Add(node, Kind::kDone, 0);  // the K node before it writes these rows
      return true;
    }
    SetRowsJob job;
    if (PlanSetRows(graph, index, &error_, &job)) {
      Add(node, Kind::kSetRows, set_rows_.size());
      set_rows_.push_back(job);
      return true;
    }
  } else if (node->op == GGML_OP_FLASH_ATTN_EXT) {
    LearnHeadDim(node);
    AttentionJob job;
    if (PlanAttention(node, n_threads, &job)) {
      Add(node, Kind::kAttention, attention_.size());
      attention_.push_back(job);
      return true;
    }
  }
  if (!generic_runner_.Prepare()) {
    LogError("cannot create a CPU backend for %s on a KV cache", Host().ggml_op_name(node->op));
    return false;
  }
  Add(node, Kind::kGeneric, generic_.size());
  generic_.emplace_back();
  PlanGeneric(node, &generic_runner_, &error_, &generic_.back());
  return true;
}

// One workspace for all attention nodes that a SET_ROWS node can begin; the few others (layers that
// re-use another layer's cache) get one each and are begun here.
bool GraphRewrite::PlanWorkspaces() {
  size_t shared = 0;
  size_t bytes = 0;
  SetRowsJob* before = nullptr;
  for (const Change& change : changes_) {
    if (change.kind == Kind::kSetRows) before = &set_rows_[change.index];
    if (change.kind != Kind::kAttention) continue;
    AttentionJob* job = &attention_[change.index];
    job->workspace_bytes = (job->workspace_bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (before != nullptr) {
      before->next_attention = job;
      shared = std::max(shared, job->workspace_bytes);
    } else {
      bytes += job->workspace_bytes;
      own_workspace_.push_back(job);
    }
    before = nullptr;
  }
  bytes += shared;
  if (bytes > workspace_bytes_) {
    workspace_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, bytes)));
    workspace_bytes_ = workspace_ == nullptr ? 0 : bytes;
    if (workspace_ == nullptr) {
      LogError("out of memory");
      return false;
    }
    LogDebug("attention workspace %.2f MiB", static_cast<double>(bytes) / 1048576.0);
  }
  for (AttentionJob& job : attention_) job.workspace = workspace_.get();
  uint8_t* next = workspace_.get() + shared;
  for (AttentionJob* job : own_workspace_) {
    job->workspace = next;
    next += job->workspace_bytes;
    error_.Set(BeginAttention(job));
  }
  return true;
}

// Lets attention read tiles as each of its tokens would have found them, had they come one by one.
void GraphRewrite::PlanCopies() {
  copies_.Clear();
  for (int step = 0; step < static_cast<int>(changes_.size()); ++step) {
    const Change& change = changes_[static_cast<size_t>(step)];
    if (change.kind == Kind::kSetRows) {
      SetRowsJob* job = &set_rows_[change.index];
      for (int i = 0; i < job->n_parts; ++i) {
        job->parts[i].write = copies_.Write(job->parts[i].kv, job->parts[i].rows->ne[1], step);
      }
    } else if (change.kind == Kind::kAttention) {
      AttentionJob* job = &attention_[change.index];
      job->key_write = copies_.Read(job->keys, job->key_tokens, step);
      job->value_write = copies_.Read(job->values, job->value_tokens, step);
    } else if (change.kind == Kind::kGeneric) {
      if (const KvTensor* written = FindKv(change.node)) copies_.Forget(written);
    }
  }
  copies_.Place();
  for (SetRowsJob& job : set_rows_) {
    for (SetRowsPart& part : job.parts) part.copies = copies_.Block(part.write);
  }
  for (AttentionJob& job : attention_) {
    UseCopies(copies_.Block(job.key_write), copies_.Block(job.value_write), &job.call);
  }
}

bool GraphRewrite::Plan(ggml_cgraph* cgraph, int n_threads) {
  changes_.clear();
  set_rows_.clear();
  attention_.clear();
  generic_.clear();
  own_workspace_.clear();
  const GraphNodes graph = {Host().ggml_graph_nodes(cgraph), Host().ggml_graph_n_nodes(cgraph)};
  if (!checks_.CheckPlacement(graph)) return false;
  for (int i = 0; i < graph.n; ++i) {
    if (IsViewOp(graph[i]) || !TouchesPlanes(graph[i])) continue;
    if (!checks_.CheckWrite(graph[i])) return false;
    if (!PlanNode(graph, i, n_threads)) return false;
  }
  PlanCopies();
  return PlanWorkspaces();
}

void GraphRewrite::Apply() {
  for (const Change& change : changes_) {
    ggml_custom_op_t callback = RunNothing;
    void* job = nullptr;
    int n_tasks = GGML_N_TASKS_MAX;
    switch (change.kind) {
      case Kind::kDone:
        n_tasks = 1;
        break;
      case Kind::kSetRows:
        callback = RunSetRows;
        job = &set_rows_[change.index];
        break;
      case Kind::kAttention:
        callback = RunAttention;
        job = &attention_[change.index];
        break;
      case Kind::kGeneric:
        callback = RunGeneric;
        job = &generic_[change.index];
        break;
    }
    // ggml's own layout of the parameters of a custom node (struct ggml_custom_op_params).
    struct {
      ggml_custom_op_t callback;
      int n_tasks;
      void* job;
    } const params = {callback, n_tasks, job};
    static_assert(sizeof(params) <= sizeof(change.op_params));
    change.node->op = GGML_OP_CUSTOM;
    std::memcpy(change.node->op_params, &params, sizeof(params));
  }
}

void GraphRewrite::Restore() {
  for (const Change& change : changes_) {
    change.node->op = change.op;
    std::memcpy(change.node->op_params, change.op_params, sizeof(change.op_params));
  }
}

void GraphRewrite::LogProgress(uint64_t n_graphs) const {
  if (set_rows_.empty()) return;
  kvarn_plane_stats total = {};
  for (const SetRowsJob& job : set_rows_) {
    for (int i = 0; i < job.n_parts; ++i) job.parts[i].kv->AddStats(&total);
  }
  LogDebug("graph %llu: %s", static_cast<unsigned long long>(n_graphs), Describe(total).c_str());
}

}  // namespace kvarn::ggml_plugin
