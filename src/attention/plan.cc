// SPDX-License-Identifier: Apache-2.0
#include "attention/plan.h"

#include <algorithm>
#include <atomic>

namespace kvarn {
namespace {

constexpr int kMaxTasks = 64;       // enough to balance any host's threads
constexpr int kFewTasks = 16;       // enough for most, while splits are short
constexpr int64_t kShortSplit = 4;  // tiles of a split, at least, so that merging stays cheap
constexpr int64_t kLongSplit = 8;   // at least, once there are a few tasks: a split starts slowly

size_t Align(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

kvarn_status CheckBlocks(int64_t rows_per_head, int64_t n_blocks) {
  return rows_per_head > INT32_MAX || n_blocks > INT32_MAX / kMaxTasks ? KVARN_ERROR_ARGUMENT
                                                                       : KVARN_OK;
}

AttentionPlan PlanAttention(const AttentionWork& work, int n_threads) {
  AttentionPlan plan = {};
  plan.block_rows = std::min(work.rows_per_head, kQueryBlock);
  plan.n_blocks = work.n_blocks;
  const int blocks = std::max(plan.n_blocks, 1);
  const int64_t few = std::min<int64_t>(work.n_tiles / kShortSplit, kFewTasks / blocks);
  const int64_t splits =
      std::min<int64_t>(std::max(few, work.n_tiles / kLongSplit), kMaxTasks / blocks);
  plan.n_splits = static_cast<int>(std::max<int64_t>(splits, 1));

  const int value_stride = RowStride(work.shape.value.head_dim);
  plan.partial_bytes = Align(sizeof(float) * (2 * static_cast<size_t>(kQueryBlock) +
                                              2 * static_cast<size_t>(plan.block_rows) *
                                                  static_cast<size_t>(value_stride)));
  // Without splits a thread merges its own block at once: one partial a thread.
  const size_t n_partials =
      plan.n_splits == 1 ? static_cast<size_t>(n_threads)
                         : static_cast<size_t>(plan.n_blocks) * static_cast<size_t>(plan.n_splits);
  plan.per_thread = MakeAttentionScratch(work.shape.key.head_dim, work.shape.value.head_dim);
  plan.done = Align(sizeof(std::atomic<int32_t>));  // the task counter comes first
  plan.partials =
      plan.done + Align(sizeof(std::atomic<int32_t>) * static_cast<size_t>(plan.n_blocks));
  plan.scratch = plan.partials + plan.partial_bytes * n_partials;
  plan.bytes = plan.scratch + plan.per_thread.bytes * static_cast<size_t>(n_threads);
  return plan;
}

}  // namespace kvarn
