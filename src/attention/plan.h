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

// A call as its blocks of query rows. Planes and paged sequences each have their own.
class AttentionWork {
 public:
  virtual ~AttentionWork() = default;
  // Block b in [0, n_blocks): all but range of tiles, partial and scratch.
  virtual AttentionTask Block(int block) const = 0;

  AttentionShape shape = {};
  int n_blocks = 0;
  int rows_per_head = 0;  // query rows of one KV head and sequence, at most
  int64_t n_tiles = 0;    // of a block, at most
};

struct AttentionPlan {
  int block_rows;  // rows of a block, at most
  int n_blocks;
  int n_splits;  // ranges of tiles of each block
  // Workspace, in bytes from its start.
  size_t done;      // atomic int32 [n_blocks]: finished splits
  size_t partials;  // [n_blocks or n_threads][n_splits]
  size_t partial_bytes;
  size_t scratch;  // [n_threads]
  AttentionScratch per_thread;
  size_t bytes;
};

// KVARN_OK if so many blocks can be run.
kvarn_status CheckBlocks(int64_t rows_per_head, int64_t n_blocks);
inline int64_t BlocksOf(int64_t rows) { return (rows + kQueryBlock - 1) / kQueryBlock; }
// n_threads >= 1.
AttentionPlan PlanAttention(const AttentionWork& work, int n_threads);

kvarn_status BeginAttention(const AttentionWork& work, void* workspace, int n_threads);
void RunAttention(const AttentionWork& work, void* workspace, int thread, int n_threads);

}  // namespace kvarn
#endif  // KVARN_ATTENTION_PLAN_H_
