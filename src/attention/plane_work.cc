// SPDX-License-Identifier: Apache-2.0
#include "attention/plane_work.h"

namespace kvarn {
namespace {

const RecentHeader* Recent(const void* first, size_t offset) {
  if (first == nullptr) return nullptr;
  return reinterpret_cast<const RecentHeader*>(static_cast<const uint8_t*>(first) + offset);
}

}  // namespace

kvarn_status CheckAttention(const kvarn_attention& call) {
  if (call.key_plane == nullptr || call.value_plane == nullptr || call.keys == nullptr ||
      call.values == nullptr || call.query == nullptr || call.out == nullptr) {
    return KVARN_ERROR_ARGUMENT;
  }
  const kvarn_plane_config& k = call.key_plane->config;
  const kvarn_plane_config& v = call.value_plane->config;
  if (k.format.role != KVARN_KEY || v.format.role != KVARN_VALUE ||
      k.format.group != v.format.group || k.format.order != KVARN_ORDER_CPU ||
      v.format.order != KVARN_ORDER_CPU) {
    return KVARN_ERROR_FORMAT;
  }
  if (call.n_streams < 1 || call.n_tokens < 1 || call.n_kv_heads < 1 || call.n_heads < 1 ||
      call.n_heads % call.n_kv_heads != 0 || call.n_rows < 0 || call.n_rows > k.n_rows ||
      call.n_rows > v.n_rows) {
    return KVARN_ERROR_ARGUMENT;
  }
  const int64_t rows = static_cast<int64_t>(call.n_tokens) * (call.n_heads / call.n_kv_heads);
  int64_t blocks = 0;
  if (__builtin_mul_overflow(BlocksOf(rows), int64_t{call.n_streams} * call.n_kv_heads, &blocks) ||
      CheckBlocks(rows, blocks) != KVARN_OK) {
    return KVARN_ERROR_ARGUMENT;
  }
  if (call.mask != nullptr && (call.mask_heads < 1 || call.mask_streams < 1)) {
    return KVARN_ERROR_ARGUMENT;
  }
  return KVARN_OK;
}

PlaneWork::PlaneWork(const kvarn_attention& call) : call_(call) {
  shape.key = call.key_plane->config.format;
  shape.value = call.value_plane->config.format;
  shape.key_layout = call.key_plane->record;
  shape.value_layout = call.value_plane->record;
  shape.key_rotation = FindRotation(shape.key.head_dim);
  shape.value_rotation = FindRotation(shape.value.head_dim);
  shape.dtype = KVARN_FP32;
  shape.n_heads = call.n_heads;
  shape.heads_per_kv = call.n_heads / call.n_kv_heads;
  shape.scale = call.scale;
  shape.max_bias = call.max_bias;
  shape.softcap = call.softcap;
  shape.sinks = call.sinks;
  rows_per_head = call.n_tokens * shape.heads_per_kv;
  blocks_per_head_ = static_cast<int>(BlocksOf(rows_per_head));
  n_blocks = call.n_streams * call.n_kv_heads * blocks_per_head_;
  n_tiles = (call.n_rows + shape.key.group - 1) / shape.key.group;
}

AttentionTask PlaneWork::Block(int block) const {
  const int head_index = block / blocks_per_head_;
  AttentionTask task = {};
  task.shape = &shape;
  task.kv_head = head_index % call_.n_kv_heads;
  const auto stream = static_cast<size_t>(head_index / call_.n_kv_heads);
  const auto head = static_cast<size_t>(task.kv_head);
  PlaneTiles& planes = task.planes;
  planes.call = &call_;
  planes.stream = static_cast<int>(stream);
  planes.keys = static_cast<const uint8_t*>(call_.keys) + stream * call_.key_stream_stride +
                head * call_.key_head_stride;
  planes.values = static_cast<const uint8_t*>(call_.values) + stream * call_.value_stream_stride +
                  head * call_.value_head_stride;
  planes.key_recent = Recent(call_.key_recent, stream * call_.key_recent_stream_stride +
                                                   head * call_.key_recent_head_stride);
  planes.value_recent = Recent(call_.value_recent, stream * call_.value_recent_stream_stride +
                                                       head * call_.value_recent_head_stride);
  task.query = reinterpret_cast<const uint8_t*>(call_.query) + stream * call_.query_stream_stride;
  task.query_token_stride = static_cast<int64_t>(call_.query_token_stride);
  task.query_head_stride = static_cast<int64_t>(call_.query_head_stride);
  task.out = reinterpret_cast<uint8_t*>(call_.out) + stream * call_.out_stream_stride;
  task.out_token_stride = static_cast<int64_t>(call_.out_token_stride);
  task.out_head_stride = static_cast<int64_t>(call_.out_head_stride);
  task.first_row = block % blocks_per_head_ * kQueryBlock;
  const int left = rows_per_head - task.first_row;
  task.n_rows = left < kQueryBlock ? left : kQueryBlock;
  task.n_tiles = n_tiles;
  return task;
}

}  // namespace kvarn
