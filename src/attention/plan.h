// SPDX-License-Identifier: Apache-2.0
//
// How a call is cut into tasks and where its workspace lies. A pure function of the call: the same
// call gives the same cut, and so the same result, for any number of threads.
#ifndef KVARN_ATTENTION_PLAN_H_
#define KVARN_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "attention/task.h"
#include "kvarn/kvarn.h"

namespace kvarn {

struct AttentionPlan {
  int rows_per_head;  // query rows of one KV head and stream: tokens x heads_per_kv
  int blocks_per_head;
  int n_blocks;  // streams x KV heads x blocks_per_head
  int n_splits;  // ranges of tiles of each block
  int64_t n_tiles;
  // Workspace, in bytes from its start.
  size_t done;      // atomic int32 [n_blocks]: finished splits
  size_t partials;  // [n_blocks or n_threads][n_splits]
  size_t partial_bytes;
  size_t scratch;  // [n_threads]
  AttentionScratch per_thread;
  size_t bytes;
};

// KVARN_OK if the call may be run.
kvarn_status CheckAttention(const kvarn_attention& call);
// `call` must be checked, n_threads >= 1.
AttentionPlan PlanAttention(const kvarn_attention& call, int n_threads);

kvarn_status BeginAttention(const kvarn_attention& call, void* workspace, int n_threads);
void RunAttention(const kvarn_attention& call, void* workspace, int thread, int n_threads);

}  // namespace kvarn
#endif  // KVARN_ATTENTION_PLAN_H_
