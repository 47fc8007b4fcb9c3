// SPDX-License-Identifier: Apache-2.0
#include "attention/paged_work.h"

#include <algorithm>

#include "paged/rows.h"

namespace kvarn {

PagedWork::PagedWork(const kvarn_paged_step& step) : step_(step) {
  shape.key = step.key_format;
  shape.value = step.value_format;
  shape.key_layout = MakeRecordLayout(shape.key);
  shape.value_layout = MakeRecordLayout(shape.value);
  shape.key_rotation = FindRotation(shape.key.head_dim);
  shape.value_rotation = FindRotation(shape.value.head_dim);
  shape.dtype = step.dtype;
  shape.n_heads = step.n_heads;
  shape.heads_per_kv = step.n_heads / step.n_kv_heads;
  shape.scale = step.scale;
  shape.softcap = step.softcap;
  int64_t largest = 0;
  n_blocks = static_cast<int>(CountBlocks(&largest));
  rows_per_head = static_cast<int>(largest);
  for (int i = 0; i < step.n_sequences; ++i) {
    if (RowsOf(i) == 0) continue;
    const int64_t length = step.lengths[i];
    n_tiles = std::max(n_tiles, (length + shape.key.group - 1) / shape.key.group);
  }
}

int64_t PagedWork::RowsOf(int sequence) const {
  return static_cast<int64_t>(StepTokens(step_, sequence)) * shape.heads_per_kv;
}

int64_t PagedWork::CountBlocks(int64_t* largest_rows) const {
  int64_t count = 0;
  *largest_rows = 0;
  for (int i = 0; i < step_.n_sequences; ++i) {
    *largest_rows = std::max(*largest_rows, RowsOf(i));
    count += BlocksOf(RowsOf(i)) * step_.n_kv_heads;
  }
  return count;
}

void PagedWork::ListBlocks(int32_t* first) const {
  first[0] = 0;
  for (int i = 0; i < step_.n_sequences; ++i) {
    first[i + 1] = first[i] + static_cast<int32_t>(BlocksOf(RowsOf(i))) * step_.n_kv_heads;
  }
}

AttentionTask PagedWork::Block(int block) const {
  const int32_t* end = first_block_ + step_.n_sequences + 1;
  const auto sequence =
      static_cast<int>(std::upper_bound(first_block_, end, block) - first_block_) - 1;
  const auto rows = static_cast<int>(RowsOf(sequence));
  const auto per_head = static_cast<int>(BlocksOf(rows));
  const int in_sequence = block - first_block_[sequence];
  AttentionTask task = {};
  task.shape = &shape;
  task.paged = {&step_, sequence};
  task.kv_head = in_sequence % step_.n_kv_heads;
  const int64_t token = step_.query_start[sequence];
  task.query = static_cast<const uint8_t*>(step_.query) + token * step_.query_token_stride;
  task.query_token_stride = step_.query_token_stride;
  task.query_head_stride = step_.query_head_stride;
  task.out = static_cast<uint8_t*>(step_.out) + token * step_.out_token_stride;
  task.out_token_stride = step_.out_token_stride;
  task.out_head_stride = step_.out_head_stride;
  task.first_row = (per_head - 1 - in_sequence / step_.n_kv_heads) * kQueryBlock;
  task.n_rows = std::min(rows - task.first_row, kQueryBlock);
  const int last_token = (task.first_row + task.n_rows - 1) / shape.heads_per_kv;
  const int64_t seen = ComputedRows(step_, sequence) + last_token + 1;
  task.n_tiles = (seen + shape.key.group - 1) / shape.key.group;
  return task;
}

}  // namespace kvarn
