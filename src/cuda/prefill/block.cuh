// SPDX-License-Identifier: Apache-2.0
//
// The query rows of a CTA, and which positions each of them sees where.
#pragma once

#include "cuda/attention/softmax.cuh"
#include "cuda/prefill/params.h"
#include "cuda/prefill/shape.h"

namespace kvarn::cuda {

struct QueryBlock {
  int sequence, kv_head;
  int first_token;  // flat index of the first query token of the sequence
  int start;        // its position
  int first_row;    // of the block, in the sequence: row = token * heads_per_kv + head
  int n_rows;       // of the sequence
  int low, high;    // positions of the first and the last query row of the block
  int sink_end;     // positions below are exact: the group, or 0
  bool sink_rows;   // and lie in the sink rows
  int sink_row;     // exact row of position 0
  int sealed;       // positions below (from sink_end on) are read from records by all rows
};

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
    return true;
  }
  return false;
}

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

struct Visible {
  int first, last;
};
enum class Part { kRecords, kSink, kOpen };
// What a query at position x sees of a part; both ends grow with x.
template <typename Shape>
__device__ __forceinline__ Visible VisibleOf(const PrefillParams& p, const QueryBlock& block,
                                             Part part, int x) {
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
__device__ __forceinline__ const unsigned char* QueryOf(const PrefillParams& p,
                                                        const QueryBlock& block,
                                                        const BlockRow& row) {
  const kvarn_cuda_decode& call = p.call.attention;
  return static_cast<const unsigned char*>(call.query) +
         static_cast<int64_t>(block.first_token + row.token) * call.query_token_stride +
         static_cast<int64_t>(row.head) * call.query_head_stride;
}

}  // namespace kvarn::cuda
