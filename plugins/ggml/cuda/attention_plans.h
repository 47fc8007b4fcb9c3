// SPDX-License-Identifier: Apache-2.0
//
// Plans of attention calls (kvarn_cuda_attention_plan), shared by the layers of a graph: caches to
// which the same rows were written in the same order keep their tiles in the same places.
#ifndef KVARN_PLUGINS_GGML_CUDA_ATTENTION_PLANS_H_
#define KVARN_PLUGINS_GGML_CUDA_ATTENTION_PLANS_H_

#include <vector>

#include "cuda/device_block.h"
#include "kv_tensor.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::ggml_plugin {

class AttentionPlans {
 public:
  explicit AttentionPlans(KvMemory* memory) : memory_(memory) { plans_.reserve(kMost); }

  // Plans of the graph before are void: caches and masks have changed. The same graph takes the
  // same places again, so that none has to grow while it is recorded.
  void BeginGraph() { n_used_ = next_ = 0; }
  // Attention over caches, planned if no layer before had the same history (of the caches and the
  // streams that are read).
  // With copies of recent tiles, which are part of the plan, or null.
  kvarn_status Run(const kvarn_attention& call, const kvarn_cuda_recent* recent, uint64_t history,
                   void* stream);

 private:
  struct Plan {
    explicit Plan(KvMemory* memory) : workspace(memory) {}
    uint64_t history = 0;
    bool recent = false;
    kvarn_attention call = {};
    DeviceBlock workspace;
  };
  // Full and sliding caches; more take turns.
  static constexpr size_t kMost = 4;

  KvMemory* memory_;
  std::vector<Plan> plans_;
  size_t n_used_ = 0;
  size_t next_ = 0;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_ATTENTION_PLANS_H_
