// SPDX-License-Identifier: Apache-2.0
#include "attention/plan.h"

#include <algorithm>
#include <atomic>

namespace kvarn {
namespace {

constexpr int kMaxTasks = 64;          // enough to balance any host's threads
constexpr int64_t kTilesPerSplit = 4;  // at least, so that merging stays cheap

size_t Align(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

kvarn_status CheckAttention(const kvarn_attention& call) {
  if (call.key_plane == nullptr || call.value_plane == nullptr || call.keys == nullptr ||
      call.values == nullptr || call.query == nullptr || call.out == nullptr) {
    return KVARN_ERROR_ARGUMENT;
  }
  const kvarn_plane_config& k = call.key_plane->config;
  const kvarn_plane_config& v = call.value_plane->config;
  if (k.format.role != KVARN_KEY || v.format.role != KVARN_VALUE ||
      k.format.group != v.format.group) {
    return KVARN_ERROR_FORMAT;
  }
  if (call.n_streams < 1 || call.n_tokens < 1 || call.n_kv_heads < 1 || call.n_heads < 1 ||
      call.n_heads % call.n_kv_heads != 0 || call.n_rows < 0 || call.n_rows > k.n_rows ||
      call.n_rows > v.n_rows) {
    return KVARN_ERROR_ARGUMENT;
  }
  const int64_t rows = static_cast<int64_t>(call.n_tokens) * (call.n_heads / call.n_kv_heads);
  const int64_t blocks = (rows + kQueryBlock - 1) / kQueryBlock;
  if (rows > INT32_MAX || blocks * call.n_streams * call.n_kv_heads > INT32_MAX / kMaxTasks) {
    return KVARN_ERROR_ARGUMENT;
  }
  if (call.mask != nullptr && (call.mask_heads < 1 || call.mask_streams < 1)) {
    return KVARN_ERROR_ARGUMENT;
  }
  return KVARN_OK;
}

AttentionPlan PlanAttention(const kvarn_attention& call, int n_threads) {
  AttentionPlan plan = {};
  const int group = call.key_plane->config.format.group;
  plan.rows_per_head = call.n_tokens * (call.n_heads / call.n_kv_heads);
  plan.blocks_per_head = (plan.rows_per_head + kQueryBlock - 1) / kQueryBlock;
  plan.n_blocks = call.n_streams * call.n_kv_heads * plan.blocks_per_head;
  plan.n_tiles = (call.n_rows + group - 1) / group;
  const int64_t splits =
      std::min<int64_t>(plan.n_tiles / kTilesPerSplit, kMaxTasks / plan.n_blocks);
  plan.n_splits = static_cast<int>(std::max<int64_t>(splits, 1));

  const int value_stride = RowStride(call.value_plane->config.format.head_dim);
  const size_t block_rows = static_cast<size_t>(std::min(plan.rows_per_head, kQueryBlock));
  plan.partial_bytes = Align(sizeof(float) * (2 * static_cast<size_t>(kQueryBlock) +
                                              2 * block_rows * static_cast<size_t>(value_stride)));
  // Without splits a thread merges its own block at once: one partial a thread.
  const size_t n_partials =
      plan.n_splits == 1 ? static_cast<size_t>(n_threads)
                         : static_cast<size_t>(plan.n_blocks) * static_cast<size_t>(plan.n_splits);
  plan.per_thread = MakeAttentionScratch(call.key_plane->config.format.head_dim,
                                         call.value_plane->config.format.head_dim);
  plan.done = Align(sizeof(std::atomic<int32_t>));  // the task counter comes first
  plan.partials =
      plan.done + Align(sizeof(std::atomic<int32_t>) * static_cast<size_t>(plan.n_blocks));
  plan.scratch = plan.partials + plan.partial_bytes * n_partials;
  plan.bytes = plan.scratch + plan.per_thread.bytes * static_cast<size_t>(n_threads);
  return plan;
}

}  // namespace kvarn
