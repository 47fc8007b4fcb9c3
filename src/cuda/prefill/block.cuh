// SPDX-License-Identifier: Apache-2.0
//
// The query rows of a CTA, and which positions each of them sees where.
#pragma once

#include "cuda/attention/softmax.cuh"
#include "cuda/prefill/params.h"
#include "cuda/prefill/shape.h"

namespace kvarn::cuda {

struct Visible {
  int first, last;
};

struct QueryBlock {
  // Of the first query token of the sequence.
  const unsigned char* query;
  unsigned char* out;
  const unsigned char* mask;
  int sequence, kv_head;
  int first_token;       // flat index of the first query token of the sequence
  int start;             // its position
  int first_row;         // of the block, in the sequence: row = token * heads_per_kv + head
  int n_rows;            // of the sequence
  int low, high;         // positions of the first and the last query row of the block
  int sink_end;          // positions below are exact: the group, or 0
  bool sink_rows;        // and lie in the sink rows
  int sink_row;          // exact row of position 0
  int sealed;            // positions below (from sink_end on) are read from records by all rows
  int record_end;        // tiles from here on are records for no row
  Visible seen_records;  // what all rows see of the records
  // With a tile table the chunk is empty, start behind the last row, which is low and high; nothing
  // is sealed and there are no sinks.
  int n_words;  // then: of bits of tiles
};

// First position that a query at position x sees at all.
__device__ __forceinline__ int FirstVisible(const PrefillParams& p, int x) {
  const int window = p.call.attention.window;
  return window > 0 ? max(x - window + 1, 0) : 0;
}
// Positions from sink_end up to this one (a multiple of the group) are read from records by a query
// at position x, later ones as exact rows.
template <typename Shape>
__device__ __forceinline__ int RecordEnd(const PrefillParams& p, const QueryBlock& block, int x) {
  int end = max(block.sealed, block.sink_end);
  if (p.call.seal_lag >= 0) {
    end = max(end, max(x - p.call.seal_lag, 0) / Shape::kGroup * Shape::kGroup);
  }
  return end;
}

enum class Part { kRecords, kSink, kOpen };
// What a query at position x sees of a part; both ends grow with x.
template <typename Shape>
__device__ __forceinline__ Visible VisibleOf(const PrefillParams& p, const QueryBlock& block,
                                             Part part, int x) {
  if (p.listed) return {0, block.high};
  const int first = FirstVisible(p, x);
  if (part == Part::kSink) return {first, min(x, block.sink_end - 1)};
  const int end = RecordEnd<Shape>(p, block, x);
  if (part == Part::kRecords) return {first, end - 1};
  return {max(first, end), x};
}

// Positions of a part that all query rows of the block see.
template <typename Shape>
__device__ __forceinline__ Visible VisibleToAll(const PrefillParams& p, const QueryBlock& block,
                                                Part part) {
  return {VisibleOf<Shape>(p, block, part, block.high).first,
          VisibleOf<Shape>(p, block, part, block.low).last};
}

// Where the rows of a block's sequence begin: of flat arrays `token` in, or `sequence` strides.
__device__ __forceinline__ void SetRows(const PrefillParams& p, int64_t token, int64_t sequence,
                                        QueryBlock* block) {
  const kvarn_cuda_decode& call = p.call.attention;
  block->query = static_cast<const unsigned char*>(call.query) + token * call.query_token_stride +
                 sequence * call.query_sequence_stride;
  block->out = static_cast<unsigned char*>(call.out) + token * call.out_token_stride +
               sequence * call.out_sequence_stride;
  block->mask = reinterpret_cast<const unsigned char*>(call.mask) + token * call.mask_token_stride +
                sequence * call.mask_sequence_stride;
}

// With a tile table: all sequences have the same blocks.
template <typename Shape>
__device__ __forceinline__ void FindListedBlock(const PrefillParams& p, QueryBlock* block) {
  const kvarn_cuda_decode& call = p.call.attention;
  *block = {};
  block->kv_head = static_cast<int>(blockIdx.x) % call.n_kv_heads;
  const int index = p.n_blocks - 1 - static_cast<int>(blockIdx.x) / call.n_kv_heads;
  block->sequence = index / p.blocks_per_sequence;
  block->first_row = index % p.blocks_per_sequence * Shape::kRows;
  block->n_rows = call.n_tokens * p.heads_per_kv;
  const int length =
      max(min(call.lengths[block->sequence], call.tile_table_stride * Shape::kGroup), 0);
  block->start = length;
  block->low = block->high = length - 1;
  block->sink_row = -1;
  block->n_words = (length + 32 * Shape::kGroup - 1) / (32 * Shape::kGroup);
  SetRows(p, 0, block->sequence, block);
}

// False if the grid has no block here. Blocks with the longest way back come first.
template <typename Shape>
__device__ __forceinline__ bool FindBlock(const PrefillParams& p, int lane, QueryBlock* block) {
  constexpr int kGroup = Shape::kGroup;
  const kvarn_cuda_decode& call = p.call.attention;
  block->kv_head = static_cast<int>(blockIdx.x) % call.n_kv_heads;
  int wanted = p.n_blocks - 1 - static_cast<int>(blockIdx.x) / call.n_kv_heads;
  for (int base = 0; base < call.n_sequences; base += 32) {
    const int sequence = base + lane;
    int tokens = 0;
    if (sequence < call.n_sequences) {
      tokens = p.call.query_begin[sequence + 1] - p.call.query_begin[sequence];
    }
    const int mine = (tokens * p.heads_per_kv + Shape::kRows - 1) / Shape::kRows;
    int up_to = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, up_to, step);
      if (lane >= step) up_to += other;
    }
    const unsigned owners = __ballot_sync(0xFFFFFFFFU, wanted < up_to);
    if (owners == 0) {
      wanted -= __shfl_sync(0xFFFFFFFFU, up_to, 31);
      continue;
    }
    const int owner = __ffs(static_cast<int>(owners)) - 1;
    const int index = wanted - __shfl_sync(0xFFFFFFFFU, up_to - mine, owner);
    tokens = __shfl_sync(0xFFFFFFFFU, tokens, owner);
    const int at = base + owner;
    block->sequence = at;
    block->first_token = p.call.query_begin[at];
    block->start = call.lengths[at] - tokens;
    block->first_row = index * Shape::kRows;
    block->n_rows = tokens * p.heads_per_kv;
    block->low = block->start + block->first_row / p.heads_per_kv;
    const int last = min(block->first_row + Shape::kRows, block->n_rows) - 1;
    block->high = block->start + last / p.heads_per_kv;
    block->sealed = min(call.sealed_rows[at], block->start) / kGroup * kGroup;
    block->sink_row = call.sink_rows == nullptr ? -1 : call.sink_rows[at];
    block->sink_end = block->sink_row >= 0 ? kGroup : 0;
    block->sink_rows = block->sink_row >= 0 && block->sealed > 0;
    block->record_end = RecordEnd<Shape>(p, *block, block->high) / kGroup;
    block->seen_records = VisibleToAll<Shape>(p, *block, Part::kRecords);
    SetRows(p, block->first_token, 0, block);
    return true;
  }
  return false;
}

struct BlockRow {
  bool real;  // false: only pads
  int token;  // of the sequence
  int head;
};
__device__ __forceinline__ BlockRow RowOf(const PrefillParams& p, const QueryBlock& block,
                                          int row_of_block) {
  const int row = block.first_row + row_of_block;
  const int token = min(row, block.n_rows - 1) / p.heads_per_kv;
  return {row < block.n_rows, token,
          block.kv_head * p.heads_per_kv + min(row, block.n_rows - 1) - token * p.heads_per_kv};
}
// Of the query token, or the last one that the cache has, which is no further.
__device__ __forceinline__ int PositionOf(const QueryBlock& block, const BlockRow& row) {
  return min(block.start + row.token, block.high);
}
__device__ __forceinline__ const unsigned char* QueryOf(const PrefillParams& p,
                                                        const QueryBlock& block,
                                                        const BlockRow& row) {
  const kvarn_cuda_decode& call = p.call.attention;
  return block.query + static_cast<int64_t>(row.token) * call.query_token_stride +
         static_cast<int64_t>(row.head) * call.query_head_stride;
}

}  // namespace kvarn::cuda
