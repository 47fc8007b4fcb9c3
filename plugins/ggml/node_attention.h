// SPDX-License-Identifier: Apache-2.0
//
// FLASH_ATTN_EXT over planes.
#ifndef KVARN_PLUGINS_GGML_NODE_ATTENTION_H_
#define KVARN_PLUGINS_GGML_NODE_ATTENTION_H_

#include "graph_nodes.h"
#include "recent_copies.h"

namespace kvarn::ggml_plugin {

// If `op` is attention over a cache, tell the caches their head dim: nothing else shows it.
void LearnHeadDim(const ggml_tensor* op);

struct AttentionJob {
  kvarn_attention call = {};
  const KvTensor* keys = nullptr;
  const KvTensor* values = nullptr;
  TokenShape key_tokens, value_tokens;   // they differ in the first stream at most
  int key_write = -1, value_write = -1;  // of RecentCopies
  uint8_t* workspace = nullptr;
  size_t workspace_bytes = 0;
  int32_t n_shares = 1;  // into which the call is cut; ggml may run it with fewer threads
  bool begun = false;
};

// Prepare the workspace of a planned job: one thread, before any RunAttention of it and after the
// last one of any other job with the same workspace.
kvarn_status BeginAttention(AttentionJob* job);

// Fill the call of a job from the node; false if its views or shapes need the generic way.
bool FillAttention(const ggml_tensor* node, AttentionJob* job);

// The same, and cut it into shares for n_threads.
bool PlanAttention(const ggml_tensor* node, int n_threads, AttentionJob* job);

// Let the call read exact copies; blocks may be empty.
void UseCopies(const RecentBlock& keys, const RecentBlock& values, kvarn_attention* call);

// Callback of the custom node; userdata is the AttentionJob. Does nothing if it was not begun.
void RunAttention(ggml_tensor* node, int thread, int n_threads, void* job);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_NODE_ATTENTION_H_
