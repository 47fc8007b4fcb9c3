// SPDX-License-Identifier: Apache-2.0
#include "cuda/attention_plans.h"

namespace kvarn::ggml_plugin {
namespace {

// Whether a plan made for one call serves the other: everything but where planes, queries, outputs
// and sinks lie.
bool SamePlan(const kvarn_attention& a, const kvarn_attention& b) {
  return kvarn_plane_bytes(a.key_plane) == kvarn_plane_bytes(b.key_plane) &&
         kvarn_plane_bytes(a.value_plane) == kvarn_plane_bytes(b.value_plane) &&
         a.n_streams == b.n_streams && a.n_tokens == b.n_tokens && a.n_heads == b.n_heads &&
         a.n_kv_heads == b.n_kv_heads && a.n_rows == b.n_rows && a.mask == b.mask &&
         a.mask_streams == b.mask_streams && a.mask_token_stride == b.mask_token_stride &&
         a.mask_stream_stride == b.mask_stream_stride && a.scale == b.scale &&
         a.max_bias == b.max_bias && a.softcap == b.softcap &&
         (a.sinks == nullptr) == (b.sinks == nullptr);
}

}  // namespace

kvarn_status AttentionPlans::Run(const kvarn_attention& call, const kvarn_cuda_recent* recent,
                                 uint64_t history, void* stream) {
  Plan* plan = nullptr;
  for (Plan& made : plans_.used()) {
    if (made.history == history && made.recent == (recent != nullptr) &&
        SamePlan(made.call, call)) {
      plan = &made;
    }
  }
  kvarn_status status = KVARN_OK;
  if (plan == nullptr) {
    plan = plans_.Take();
    const size_t bytes = kvarn_cuda_attention_workspace_bytes(&call);
    if (bytes == 0) return KVARN_ERROR_UNSUPPORTED;
    uint8_t* workspace = plan->workspace.Get(bytes);
    if (workspace == nullptr) return KVARN_ERROR_MEMORY;
    plan->history = history;
    plan->call = call;
    plan->recent = recent != nullptr;
    status = kvarn_cuda_attention_plan(&call, recent, workspace, stream);
  }
  if (status != KVARN_OK) return status;
  return kvarn_cuda_attention_run(&call, recent, plan->workspace.Get(0), stream);
}

}  // namespace kvarn::ggml_plugin
