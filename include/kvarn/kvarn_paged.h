// SPDX-License-Identifier: Apache-2.0
//
// A paged cache on the CPU (C ABI), for hosts that give each sequence blocks of one tile by a block
// table and run steps of many sequences at once. The conventions of kvarn.h hold.
//
// The rows of a sequence lie in three places, by position. With c = lengths[i] less its tokens of
// this step, G = the tile length:
//   * tiles that end at or below c: records, found by block_table;
//   * the other positions below c: exact rows in the sequence's ring, position x in ring row
//     x % ring_rows;
//   * positions from c on: the rows of this step, as the model computed them.
// Nothing is remembered elsewhere: what a step means follows from its arguments and that memory.
//
// A step of one layer is three phases, each finished by all threads before the next begins, since a
// sequence may read blocks that a neighbour completes in the same step, and the rows of this step
// may replace ring rows that its attention reads:
//   1. kvarn_paged_seal: tiles whose last row is written by this step become records;
//   2. kvarn_paged_attention_begin, then kvarn_paged_attention_run: every query token attends to
//      all positions up to its own; a row with a NaN or Inf counts as zeros, as in a record;
//   3. kvarn_paged_store: the rows of this step go to the rings.
#ifndef KVARN_KVARN_PAGED_H_
#define KVARN_KVARN_PAGED_H_

#include "kvarn/kvarn.h"

#ifdef __cplusplus
extern "C" {
#endif

// All strides are bytes unless a comment says elements. n(i) = query_start[i + 1] - query_start[i].
typedef struct kvarn_paged_step {
  kvarn_format key_format;    // order KVARN_ORDER_CPU
  kvarn_format value_format;  // order KVARN_ORDER_CPU, the group of keys
  kvarn_dtype dtype;          // of query, keys, values, out and ring rows
  int32_t n_sequences;        // >= 0
  int32_t n_heads;            // multiple of n_kv_heads
  int32_t n_kv_heads;         // >= 1; query head h reads KV head h / (n_heads / n_kv_heads)

  const int32_t* query_start;  // [n_sequences + 1] ascending: tokens of sequence i in query, keys,
                               // values and out; n(i) = 0 is allowed
  const int32_t* lengths;      // [n_sequences] rows, those of this step included; >= n(i)
  const int32_t* block_table;  // [n_sequences][block_table_stride] block of each tile
  int64_t block_table_stride;  // elements

  // Records of block b, KV head h: key_records + b * key_block_stride + h * key_head_stride.
  void* key_records;
  void* value_records;
  int64_t key_block_stride, key_head_stride;
  int64_t value_block_stride, value_head_stride;

  // Ring of sequence i: its rows 0..ring_rows-1 hold exact rows, ring_history more hold sums over
  // queries (see kvarn_paged_seal). Row r lies in page p = r / ring_page_rows, at
  // ring_pages[p] + ring_table[i][p] * ring_page_stride + (r % ring_page_rows) * row bytes.
  void* const* ring_pages;    // [n_ring_pages]
  const int32_t* ring_table;  // [n_sequences][ring_table_stride]
  int64_t ring_table_stride;  // elements
  int64_t ring_page_stride;
  int32_t n_ring_pages;
  int32_t ring_page_rows;  // n_ring_pages * ring_page_rows >= ring_rows + ring_history
  int32_t ring_rows;       // >= G + the number of tokens that a host may take back
  int32_t ring_history;    // >= 1 + the number of tokens that a host may take back

  const void* query;   // [tokens][n_heads][Dk]
  const void* keys;    // [tokens][n_kv_heads][Dk]
  const void* values;  // [tokens][n_kv_heads][Dv]
  void* out;           // [tokens][n_heads][Dv]
  int64_t query_token_stride, query_head_stride;
  int64_t key_token_stride, key_row_stride;      // between tokens, between KV heads
  int64_t value_token_stride, value_row_stride;  // likewise
  int64_t out_token_stride, out_head_stride;

  float scale;    // softmax scale
  float softcap;  // 0 = off, else logit = softcap * tanh(scale * q.k / softcap)
} kvarn_paged_step;

// Bytes of one ring row; 0 if a format, dtype or n_kv_heads is not legal. Nothing else is read.
KVARN_API size_t kvarn_paged_ring_row_bytes(const kvarn_paged_step* step);

// KVARN_OK, or why the step cannot run: KVARN_ERROR_ARGUMENT or KVARN_ERROR_FORMAT. Addresses and
// block numbers are the host's responsibility.
KVARN_API kvarn_status kvarn_paged_check(const kvarn_paged_step* step);

// Phase 1. Encodes every tile whose last position is among those of this step, for share `thread`
// of `n_threads`; a step without such a tile needs no call.
// The balance of a K tile is that of the block before it in the sequence's table; tile 0 computes
// it from its rows and the mean squares of all its query tokens, of which running sums are kept in
// the ring's history rows, so that it does not depend on how tokens are grouped into steps.
//   counts  may be null, else added to; not shared between threads
// The step must have passed kvarn_paged_check. KVARN_ERROR_MEMORY is possible.
KVARN_API kvarn_status kvarn_paged_seal(const kvarn_paged_step* step, int32_t thread,
                                        int32_t n_threads, kvarn_counts* counts);

// Bytes of workspace (aligned to 64) for phase 2; 0 if the step is not legal.
KVARN_API size_t kvarn_paged_attention_workspace_bytes(const kvarn_paged_step* step,
                                                       int32_t n_threads);
// Phase 2: begin once, then every share once, in any order and at the same time. As
// kvarn_attention_begin and kvarn_attention_run.
KVARN_API kvarn_status kvarn_paged_attention_begin(const kvarn_paged_step* step, void* workspace,
                                                   int32_t n_threads);
KVARN_API void kvarn_paged_attention_run(const kvarn_paged_step* step, void* workspace,
                                         int32_t thread, int32_t n_threads);

// Phase 3, for share `thread` of `n_threads`. The step must have passed kvarn_paged_check.
KVARN_API void kvarn_paged_store(const kvarn_paged_step* step, int32_t thread, int32_t n_threads);

#ifdef __cplusplus
}  // extern "C"
#endif
#endif  // KVARN_KVARN_PAGED_H_
