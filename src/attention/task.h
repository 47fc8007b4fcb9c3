// SPDX-License-Identifier: Apache-2.0
//
// The unit of attention work: a block of query rows of one KV head against a range of tiles.
#ifndef KVARN_ATTENTION_TASK_H_
#define KVARN_ATTENTION_TASK_H_

#include <cstddef>
#include <cstdint>

#include "cache/plane.h"
#include "cache/recent.h"
#include "cpu/kernels.h"
#include "kvarn/kvarn.h"
#include "kvarn/kvarn_paged.h"

namespace kvarn {

// Query rows (token x query head of the group) that share one pass over the codes.
inline constexpr int kQueryBlock = 32;

// Rows of an exact tile that are held as fp32 at a time. Divides every group.
inline constexpr int kExactRows = 16;

// Running softmax of the rows of a block: out = (rotated H^T + plain) / sum.
struct AttentionPartial {
  float* max;      // [kQueryBlock]
  float* sum;      // [kQueryBlock]
  float* rotated;  // [kQueryBlock][RowStride(Dv)] from records, still in the rotated frame
  float* plain;    // [kQueryBlock][RowStride(Dv)] from exact tiles
};

// What all tasks of a call share.
struct AttentionShape {
  kvarn_format key, value;
  RecordLayout key_layout, value_layout;
  const Rotation* key_rotation;
  const Rotation* value_rotation;
  kvarn_dtype dtype;  // of query and output, and of exact rows of a paged cache
  int n_heads;
  int heads_per_kv;
  float scale, max_bias, softcap;
  const float* sinks;  // [n_heads] or null
};

// Where the tiles of a task are, if they belong to planes (call is null otherwise).
struct PlaneTiles {
  const kvarn_attention* call;
  const void* keys;                // memory of the K plane of this stream and KV head
  const void* values;              // memory of the V plane
  const RecentHeader* key_recent;  // copies of their tiles, or null
  const RecentHeader* value_recent;
  int stream;
};

// Where they are, if they belong to a sequence of a paged cache (step is null otherwise).
struct PagedTiles {
  const kvarn_paged_step* step;
  int sequence;
};

struct AttentionTask {
  const AttentionShape* shape;
  PlaneTiles planes;
  PagedTiles paged;
  const uint8_t* query;  // of token 0, head 0
  int64_t query_token_stride, query_head_stride;
  uint8_t* out;
  int64_t out_token_stride, out_head_stride;
  int kv_head;
  int first_row;                 // row = token * heads_per_kv + head of the group
  int n_rows;                    // <= kQueryBlock
  int64_t n_tiles;               // that any row of the block may see
  int64_t first_tile, end_tile;  // the task's range of them
  AttentionPartial partial;
  uint8_t* scratch;  // AttentionScratch
};

// Scratch of one thread, in bytes from its start.
struct AttentionScratch {
  size_t query;    // fp32 [kQueryBlock][RowStride(Dk)] scaled query
  size_t rotated;  // fp32 [kQueryBlock][RowStride(Dk)] query / s, rotated
  size_t weights;  // int8 [K, V][kQueryBlock][2][weight_stride] high and low parts
  size_t score;    // fp32 [kQueryBlock][kMaxGroup]
  size_t mask;     // fp32 [kQueryBlock][kMaxGroup]
  size_t tile;     // fp32 [kExactRows][RowStride(max(Dk, Dv))]
  size_t bytes;
  int weight_stride;
};

constexpr AttentionScratch MakeAttentionScratch(int key_dim, int value_dim) {
  const int wide = key_dim > value_dim ? key_dim : value_dim;
  AttentionScratch s = {};
  s.weight_stride = RoundUp(key_dim > kMaxGroup ? key_dim : kMaxGroup, 64);
  const auto floats = [](int rows, int columns) {
    return sizeof(float) * static_cast<size_t>(rows) * static_cast<size_t>(columns);
  };
  s.query = 0;
  s.rotated = s.query + floats(kQueryBlock, RowStride(key_dim));
  s.weights = s.rotated + floats(kQueryBlock, RowStride(key_dim));
  s.score = s.weights + 4 * static_cast<size_t>(kQueryBlock * s.weight_stride);
  s.mask = s.score + floats(kQueryBlock, kMaxGroup);
  s.tile = s.mask + floats(kQueryBlock, kMaxGroup);
  s.bytes = s.tile + floats(kExactRows, RowStride(wide));
  s.bytes = (s.bytes + 63) / 64 * 64;
  return s;
}

}  // namespace kvarn
#endif  // KVARN_ATTENTION_TASK_H_
