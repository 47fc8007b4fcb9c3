// SPDX-License-Identifier: Apache-2.0
//
// Where the rows and records of a paged sequence lie (kvarn_paged.h). Always inlined, because the
// kernels of every instruction-set level use it (cpu/kernels.h).
#ifndef KVARN_PAGED_ROWS_H_
#define KVARN_PAGED_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kvarn/kvarn_paged.h"

#define KVARN_PAGED_INLINE [[gnu::always_inline]] inline

namespace kvarn {

KVARN_PAGED_INLINE size_t ElementBytes(kvarn_dtype dtype) { return dtype == KVARN_FP32 ? 4 : 2; }

// Exact rows lie as [K of all heads][V of all heads]; a row of the history, fp32 [heads][Dk], must
// fit as well.
KVARN_PAGED_INLINE size_t RingRowBytes(const kvarn_paged_step& step) {
  const auto heads = static_cast<size_t>(step.n_kv_heads);
  const auto key_dim = static_cast<size_t>(step.key_format.head_dim);
  const auto value_dim = static_cast<size_t>(step.value_format.head_dim);
  const size_t exact = heads * (key_dim + value_dim) * ElementBytes(step.dtype);
  const size_t sums = heads * key_dim * sizeof(float);
  return exact > sums ? exact : sums;
}

KVARN_PAGED_INLINE size_t RingOffset(const kvarn_paged_step& step, kvarn_role role, int head) {
  const int key_dim = step.key_format.head_dim;
  const int dims = role == KVARN_KEY
                       ? head * key_dim
                       : step.n_kv_heads * key_dim + head * step.value_format.head_dim;
  return static_cast<size_t>(dims) * ElementBytes(step.dtype);
}

KVARN_PAGED_INLINE uint8_t* RingRow(const kvarn_paged_step& step, int sequence, int row) {
  const int page = row / step.ring_page_rows;
  const int32_t block = step.ring_table[sequence * step.ring_table_stride + page];
  return static_cast<uint8_t*>(step.ring_pages[page]) + block * step.ring_page_stride +
         static_cast<size_t>(row % step.ring_page_rows) * RingRowBytes(step);
}

// Sums over the queries of positions 0..position, fp32 [n_kv_heads][Dk].
KVARN_PAGED_INLINE uint8_t* HistoryRow(const kvarn_paged_step& step, int sequence, int position) {
  return RingRow(step, sequence, step.ring_rows + position % step.ring_history);
}

KVARN_PAGED_INLINE int StepTokens(const kvarn_paged_step& step, int sequence) {
  return step.query_start[sequence + 1] - step.query_start[sequence];
}
// Rows that were there before the step.
KVARN_PAGED_INLINE int ComputedRows(const kvarn_paged_step& step, int sequence) {
  return step.lengths[sequence] - StepTokens(step, sequence);
}

// The exact row of a position that is in the ring or belongs to this step.
KVARN_PAGED_INLINE const uint8_t* ExactRow(const kvarn_paged_step& step, int sequence,
                                           kvarn_role role, int head, int position) {
  const int computed = ComputedRows(step, sequence);
  if (position < computed) {
    return RingRow(step, sequence, position % step.ring_rows) + RingOffset(step, role, head);
  }
  const int64_t token = step.query_start[sequence] + (position - computed);
  const bool key = role == KVARN_KEY;
  return static_cast<const uint8_t*>(key ? step.keys : step.values) +
         token * (key ? step.key_token_stride : step.value_token_stride) +
         head * (key ? step.key_row_stride : step.value_row_stride);
}

KVARN_PAGED_INLINE uint8_t* RecordOf(const kvarn_paged_step& step, int sequence, kvarn_role role,
                                     int head, int64_t tile) {
  const int64_t block = step.block_table[sequence * step.block_table_stride + tile];
  if (role == KVARN_KEY) {
    return static_cast<uint8_t*>(step.key_records) + block * step.key_block_stride +
           head * step.key_head_stride;
  }
  return static_cast<uint8_t*>(step.value_records) + block * step.value_block_stride +
         head * step.value_head_stride;
}

}  // namespace kvarn
#endif  // KVARN_PAGED_ROWS_H_
