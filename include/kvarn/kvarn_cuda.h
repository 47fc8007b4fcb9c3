// SPDX-License-Identifier: Apache-2.0
//
// kvarn on CUDA devices (C ABI). The conventions of kvarn.h hold; in addition every pointer named
// "device" is device memory, `stream` is a cudaStream_t, and all calls only enqueue work on it:
// none waits, allocates device memory or reads device memory on the host, so each may be captured
// in a CUDA graph.
#ifndef KVARN_KVARN_CUDA_H_
#define KVARN_KVARN_CUDA_H_

#include "kvarn/kvarn.h"

#ifdef __cplusplus
extern "C" {
#endif

// One tile to encode; an array of these lies in device memory.
typedef struct kvarn_cuda_tile {
  const void* rows;       // device: row of position 0, head_dim 16-bit values
  int64_t row_stride;     // bytes from one position to the next
  const int8_t* balance;  // device [head_dim], or null (all zero); ignored for values
  void* record;           // device, kvarn_record_bytes(format), aligned to 16
  uint64_t written[2];    // one bit a position that holds a row; at least one
} kvarn_cuda_tile;

// Encode n_tiles tiles of 16-bit rows. format->order must be KVARN_ORDER_CUDA, format->mode
// KVARN_BALANCED and format->head_dim at most 256; otherwise KVARN_ERROR_FORMAT or
// KVARN_ERROR_UNSUPPORTED.
//   tiles   device [n_tiles]
//   counts  device, added to, may be null
// The records are those of kvarn_encode, byte for byte.
KVARN_API kvarn_status kvarn_cuda_encode(const kvarn_format* format, kvarn_dtype dtype,
                                         const kvarn_cuda_tile* tiles, int32_t n_tiles,
                                         kvarn_counts* counts, void* stream);

// ---------------------------------------------------------------------------- decode attention
//
// softmax(scale q K^T) V for a few query tokens of each of many sequences, directly on records.
// The rows of a sequence lie in three places, by position:
//   * tile 0 as exact 16-bit rows (the sink), if sink_rows[i] >= 0 and sealed_rows[i] covers it;
//   * the other full tiles below sealed_rows[i] as records of order CUDA, found by block_table;
//   * the rest as exact rows in a ring: position x in row ring_base[i] + x % ring_rows.
// Query head h reads KV head h / (n_heads / n_kv_heads). Strides are bytes. Query token t of the T
// = n_tokens of a sequence sees positions up to lengths[i] - T + t.
typedef struct kvarn_cuda_decode {
  kvarn_format key_format;    // order CUDA, balanced; same group as values
  kvarn_format value_format;  // order CUDA, balanced
  kvarn_dtype dtype;          // of query, out and exact rows

  int32_t n_sequences;  // >= 0
  int32_t n_tokens;     // >= 1
  int32_t n_heads;      // multiple of n_kv_heads
  int32_t n_kv_heads;

  // Records of block b, KV head h: key_records + b * key_block_stride + h * key_head_stride; base
  // and strides multiples of 16 bytes.
  const void* key_records;  // device
  const void* value_records;
  int64_t key_block_stride, key_head_stride;
  int64_t value_block_stride, value_head_stride;
  const int32_t* block_table;  // device [n_sequences][block_table_stride], by tile
  int32_t block_table_stride;

  // Exact row r of KV head h: exact_keys + r * exact_key_row_stride + h * exact_key_head_stride;
  // multiples of 16 bytes.
  const void* exact_keys;  // device
  const void* exact_values;
  int64_t exact_key_row_stride, exact_key_head_stride;
  int64_t exact_value_row_stride, exact_value_head_stride;
  int32_t ring_rows;  // a multiple of 16, and no less than the rows that are not sealed

  const int32_t* lengths;      // device [n_sequences] rows, those of the query tokens included
  const int32_t* sealed_rows;  // device [n_sequences]; only whole tiles below
                               // lengths[i] - n_tokens count
  const int32_t* sink_rows;    // device [n_sequences] exact row of position 0, or -1; null: none
  const int32_t* ring_base;    // device [n_sequences]

  const void* query;  // device [n_sequences][n_tokens][n_heads][Dk], strides multiples of 8
  int64_t query_sequence_stride, query_token_stride, query_head_stride;
  void* out;  // device [n_sequences][n_tokens][n_heads][Dv]; zeros where nothing is visible
  int64_t out_sequence_stride, out_token_stride, out_head_stride;

  float scale;     // softmax scale, > 0
  float softcap;   // 0 = off, else logit = softcap * tanh(logit / softcap)
  int32_t window;  // 0 = off, else only the last `window` positions are visible
  float max_bias;  // ALiBi (arXiv 2108.12409), 0 = off; times (position - own position), or mask
  const float* sinks;    // device [n_heads] logits that join the denominator only, or null
  const uint16_t* mask;  // device, additive fp16 [n_sequences][n_tokens][positions], or null
  int64_t mask_sequence_stride, mask_token_stride;
} kvarn_cuda_decode;

// Bytes of workspace (device, aligned to 256) for calls of at most this shape on the current
// device; 0 if the call is not legal. Only shapes, formats and which options are on matter, not
// pointers.
KVARN_API size_t kvarn_cuda_decode_workspace_bytes(const kvarn_cuda_decode* call);

// KVARN_OK, or why the call cannot run: KVARN_ERROR_ARGUMENT, KVARN_ERROR_FORMAT, or
// KVARN_ERROR_UNSUPPORTED where it is legal but no kernel was compiled for it, or the device is not
// of compute capability 9. At most 16 query rows (n_tokens * n_heads / n_kv_heads) so far.
KVARN_API kvarn_status kvarn_cuda_decode_check(const kvarn_cuda_decode* call);

// Cuts the work by the lengths found on the device. Once for all calls of one step that share
// shapes, lengths, sealed_rows, sink_rows, ring_base and block_table (all layers of a model).
KVARN_API kvarn_status kvarn_cuda_decode_plan(const kvarn_cuda_decode* call, void* workspace,
                                              void* stream);

// Attention by the plan in the workspace. Calls that share a workspace must be ordered by stream.
KVARN_API kvarn_status kvarn_cuda_decode_run(const kvarn_cuda_decode* call, void* workspace,
                                             void* stream);

#ifdef __cplusplus
}  // extern "C"
#endif
#endif  // KVARN_KVARN_CUDA_H_
