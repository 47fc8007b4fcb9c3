// SPDX-License-Identifier: Apache-2.0
//
// Plans of attention calls (kvarn_cuda_attention_plan), shared by the layers of a graph: caches to
// which the same rows were written in the same order keep their tiles in the same places.
#ifndef KVARN_PLUGINS_GGML_CUDA_ATTENTION_PLANS_H_
#define KVARN_PLUGINS_GGML_CUDA_ATTENTION_PLANS_H_

#include "cuda/device_block.h"
#include "cuda/turns.h"
#include "kv_tensor.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::ggml_plugin {

class AttentionPlans {
 public:
  explicit AttentionPlans(KvMemory* memory) : plans_(memory) {}

  // Caches and masks have changed.
  void BeginGraph() { plans_.BeginGraph(); }
  // Attention over caches, planned if no layer before had the same history (of the caches and the
  // streams that are read). With copies of recent tiles, which are part of the plan, or null.
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

  Turns<Plan> plans_;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_ATTENTION_PLANS_H_
