// SPDX-License-Identifier: Apache-2.0
//
// Runs a graph on a GPU: the host's CUDA backend gets it in pieces, cut at the nodes on planes,
// which run on our kernels; a graph that comes again and again becomes one CUDA graph. Nothing
// waits for the GPU, but for nodes of the generic kind and after the host has changed a cache.
#ifndef KVARN_PLUGINS_GGML_CUDA_GRAPH_RUN_H_
#define KVARN_PLUGINS_GGML_CUDA_GRAPH_RUN_H_

#include <memory>
#include <vector>

#include "cuda/attention_plans.h"
#include "cuda/handoff.h"
#include "cuda/recent_tiles.h"
#include "cuda/step_graph.h"
#include "graph_checks.h"
#include "node_set_rows.h"

namespace kvarn::ggml_plugin {

class GraphRun {
 public:
  // Null if the GPU gives no stream or events.
  static std::unique_ptr<GraphRun> New(Device* device, ggml_backend_t inner);
  GraphRun(Device* device, ggml_backend_t inner);

  ggml_status Compute(ggml_cgraph* graph);
  // After an exception: what is known of the graph may be half of it.
  void Forget() { step_graph_.Forget(); }

 private:
  enum class Kind { kSetRows, kDone, kAttention, kGeneric };
  // What a write has left for later: tiles whose copies attention reads.
  struct WriteRest {
    kvarn_cuda_plane_write writes[2];
    const void* recent = nullptr;  // null: nothing is left
    uint8_t* workspace = nullptr;
  };
  struct Step {
    int node = 0;
    Kind kind = Kind::kDone;
    size_t index = 0;  // into the jobs of this kind
  };

  bool Plan(const GraphNodes& graph);
  bool CachesTouched() const;
  void TellGeneric(const char* node, const char* what);
  void PlanNode(const GraphNodes& graph, int index);
  kvarn_status AgreeOnLives();
  kvarn_status AgreeOn(const AttentionJob& job);
  ggml_status RunSteps(ggml_cgraph* cgraph, const GraphNodes& graph);
  ggml_status TrySteps(ggml_cgraph* cgraph, const GraphNodes& graph);
  void NoteWrites();
  void MarkAllTouched();
  std::vector<size_t> Sharing() const;
  ggml_status LaunchStep(ggml_cgraph* cgraph, const GraphNodes& graph);
  ggml_status RecordStep(ggml_cgraph* cgraph, const GraphNodes& graph);
  ggml_status RunInner(ggml_cgraph* graph, int first, int end);
  kvarn_status RunStep(const GraphNodes& graph, const Step& step);
  kvarn_status RunSetRows(const SetRowsJob& job);
  bool MayTake(const GraphNodes& graph) const;
  kvarn_status TakeRows();
  size_t WritesOf(const SetRowsJob& job, kvarn_cuda_plane_write (&writes)[2]) const;
  kvarn_status RunRest(const WriteRest& rest, cudaStream_t stream);
  kvarn_status FinishWrites();
  bool OverwritesRows(const kvarn_attention& call) const;
  kvarn_status RunAttention(const AttentionJob& job);
  kvarn_status RunGeneric(ggml_tensor* node);

  Device* device_;
  ggml_backend_t inner_;
  Handoff handoff_;
  GraphChecks checks_;
  AttentionPlans plans_;
  RecentTiles recent_;
  StepGraph step_graph_;
  bool recording_ = false;
  uint32_t recordings_ = 0;      // so far, this one included
  std::vector<size_t> sharing_;  // when it was recorded
  bool may_record_ = false;      // what Plan found may be recorded once and launched again
  std::vector<Step> steps_;
  std::vector<SetRowsJob> set_rows_;
  std::vector<AttentionJob> attention_;
  std::vector<uint8_t> graph_memory_;
  DeviceBlock write_workspace_;
  bool may_take_ = false;  // the rows of all writes, before the first of them
  DeviceBlock taken_;
  uint8_t* taken_at_ = nullptr;  // of the first write, while they are taken
  size_t taken_bytes_ = 0;       // of each write
  WriteRest rest_;
  WriteRest beside_;  // what goes on beside attention, until FinishWrites
  bool told_generic_ = false;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_GRAPH_RUN_H_
