// SPDX-License-Identifier: Apache-2.0
//
// Attention over planes in device memory: the call of kvarn.h on the kernels for decode and
// prefill.
#include <cuda_runtime_api.h>

#include "cuda/attention/shape.h"
#include "cuda/common/check.h"
#include "cuda/planes/table.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {
namespace {

constexpr size_t kAlignment = 256;

// The call as the kernels take it, and what the workspace holds for it.
struct PlaneAttention {
  kvarn_cuda_prefill prefill;  // decode is its part `attention`
  bool decodes;
  int32_t n_tiles;
  size_t lengths, map, decode, bytes;  // offsets in the workspace; the tile table is first
};

// `records` may point before the memory of a plane: sinks have no records.
void SetPlanes(const kvarn_plane& plane, const void* planes, const void** records,
               int64_t* block_stride, const void** exact, int64_t* row_stride) {
  const auto* base = static_cast<const uint8_t*>(planes);
  *block_stride = static_cast<int64_t>(plane.record.bytes);
  *records = base + plane.records - plane.config.sink_tiles * *block_stride;
  *exact = base + plane.exact;
  *row_stride = int64_t{sizeof(uint16_t)} * plane.HeadDim();
}

kvarn_status CheckPlanes(const kvarn_attention& c) {
  if (c.key_plane == nullptr || c.value_plane == nullptr || c.n_streams < 1 || c.n_tokens < 1) {
    return KVARN_ERROR_ARGUMENT;
  }
  const kvarn_plane_config& key = c.key_plane->config;
  const kvarn_plane_config& value = c.value_plane->config;
  if (!IsCudaRecord(key.format, KVARN_KEY) || !IsCudaRecord(value.format, KVARN_VALUE)) {
    return KVARN_ERROR_FORMAT;
  }
  if (key.format.group != value.format.group || key.n_rows != value.n_rows ||
      key.sink_tiles != value.sink_tiles || key.tail_rows != value.tail_rows || c.n_rows < 1 ||
      c.n_rows > key.n_rows) {
    return KVARN_ERROR_ARGUMENT;
  }
  const bool masked = c.mask != nullptr && c.mask_heads == 1 &&
                      (c.mask_streams == 1 || c.mask_streams == c.n_streams);
  if (!masked || c.n_rows > INT32_MAX / 2 || c.key_recent != nullptr || c.value_recent != nullptr) {
    return KVARN_ERROR_UNSUPPORTED;
  }
  return KVARN_OK;
}

// Sets all but the pointers into the workspace.
kvarn_status Describe(const kvarn_attention& c, PlaneAttention* to) {
  kvarn_status status = CheckPlanes(c);
  if (status != KVARN_OK) return status;
  *to = {};
  const kvarn_plane& key = *c.key_plane;
  const kvarn_plane& value = *c.value_plane;
  to->n_tiles = static_cast<int32_t>((c.n_rows + key.Group() - 1) / key.Group());
  kvarn_cuda_decode& d = to->prefill.attention;
  d.key_format = key.config.format;
  d.value_format = value.config.format;
  d.dtype = KVARN_FP16;
  d.query_dtype = KVARN_FP32;
  d.n_sequences = c.n_streams;
  d.n_tokens = c.n_tokens;
  d.n_heads = c.n_heads;
  d.n_kv_heads = c.n_kv_heads;
  SetPlanes(key, c.keys, &d.key_records, &d.key_block_stride, &d.exact_keys,
            &d.exact_key_row_stride);
  SetPlanes(value, c.values, &d.value_records, &d.value_block_stride, &d.exact_values,
            &d.exact_value_row_stride);
  d.key_head_stride = d.exact_key_head_stride = static_cast<int64_t>(c.key_head_stride);
  d.value_head_stride = d.exact_value_head_stride = static_cast<int64_t>(c.value_head_stride);
  d.key_sequence_stride = d.exact_key_sequence_stride = static_cast<int64_t>(c.key_stream_stride);
  d.value_sequence_stride = d.exact_value_sequence_stride =
      static_cast<int64_t>(c.value_stream_stride);
  d.tile_table_stride = to->n_tiles;
  d.tile_table = reinterpret_cast<const int32_t*>(kAlignment);  // only whether there is one
  d.query = c.query;
  d.query_sequence_stride = static_cast<int64_t>(c.query_stream_stride);
  d.query_token_stride = static_cast<int64_t>(c.query_token_stride);
  d.query_head_stride = static_cast<int64_t>(c.query_head_stride);
  d.out = c.out;
  d.out_sequence_stride = static_cast<int64_t>(c.out_stream_stride);
  d.out_token_stride = static_cast<int64_t>(c.out_token_stride);
  d.out_head_stride = static_cast<int64_t>(c.out_head_stride);
  d.scale = c.scale;
  d.softcap = c.softcap;
  d.max_bias = c.max_bias;
  d.sinks = c.sinks;
  d.mask = c.mask;
  d.mask_sequence_stride = c.mask_streams == 1 ? 0 : static_cast<int64_t>(c.mask_stream_stride);
  d.mask_token_stride = static_cast<int64_t>(c.mask_token_stride);
  d.mask_map = reinterpret_cast<const uint8_t*>(kAlignment);
  d.mask_map_stride = to->n_tiles;
  to->prefill.seal_lag = -1;

  const auto tiles = static_cast<size_t>(to->n_tiles) * static_cast<size_t>(c.n_streams);
  const auto blocks =
      static_cast<size_t>((c.n_tokens + KVARN_CUDA_MAP_TOKENS - 1) / KVARN_CUDA_MAP_TOKENS);
  to->lengths = AlignUp(sizeof(int32_t) * tiles, kAlignment);
  to->map = to->lengths + AlignUp(sizeof(int32_t) * static_cast<size_t>(c.n_streams), kAlignment);
  to->decode = to->map + AlignUp(tiles * blocks, kAlignment);
  to->bytes = to->decode;
  to->decodes = kvarn_cuda_decode_check(&d) == KVARN_OK;
  if (to->decodes) {
    const size_t bytes = kvarn_cuda_decode_workspace_bytes(&d);
    to->bytes += bytes;
    return bytes == 0 ? KVARN_ERROR_UNSUPPORTED : KVARN_OK;
  }
  return kvarn_cuda_prefill_check(&to->prefill);
}

kvarn_status Prepare(const kvarn_attention* call, const kvarn_cuda_recent* recent, void* workspace,
                     PlaneAttention* to) {
  if (call == nullptr || workspace == nullptr || !Aligned(workspace, kAlignment)) {
    return KVARN_ERROR_ARGUMENT;
  }
  const kvarn_status status = Describe(*call, to);
  if (status != KVARN_OK) return status;
  auto* base = static_cast<uint8_t*>(workspace);
  kvarn_cuda_decode& d = to->prefill.attention;
  d.tile_table = reinterpret_cast<const int32_t*>(base);
  d.lengths = reinterpret_cast<const int32_t*>(base + to->lengths);
  d.mask_map = base + to->map;
  if (recent == nullptr) return KVARN_OK;
  kvarn_cuda_prefill& p = to->prefill;
  p.chunk_keys = recent->keys;
  p.chunk_values = recent->values;
  p.chunk_key_row_stride = d.exact_key_row_stride;
  p.chunk_value_row_stride = d.exact_value_row_stride;
  p.chunk_key_head_stride = recent->key_head_stride;
  p.chunk_value_head_stride = recent->value_head_stride;
  return KVARN_OK;
}

}  // namespace
}  // namespace kvarn::cuda

using kvarn::cuda::PlaneAttention;

size_t kvarn_cuda_attention_workspace_bytes(const kvarn_attention* call) {
  PlaneAttention made;
  if (call == nullptr || kvarn::cuda::Describe(*call, &made) != KVARN_OK) return 0;
  return made.bytes;
}

int32_t kvarn_cuda_attention_reads_recent(const kvarn_attention* call) {
  PlaneAttention made;
  const bool legal = call != nullptr && kvarn::cuda::Describe(*call, &made) == KVARN_OK;
  return legal && !made.decodes ? 1 : 0;
}

kvarn_status kvarn_cuda_attention_plan(const kvarn_attention* call, const kvarn_cuda_recent* recent,
                                       void* workspace, void* stream) {
  PlaneAttention made;
  kvarn_status status = kvarn::cuda::Prepare(call, recent, workspace, &made);
  if (status != KVARN_OK) return status;
  auto* base = static_cast<uint8_t*>(workspace);
  const kvarn_cuda_decode& d = made.prefill.attention;
  kvarn::cuda::TileTableParams table = {};
  table.entries = static_cast<const uint8_t*>(call->keys) + call->key_plane->tiles;
  table.stream_stride = d.key_sequence_stride;
  table.n_rows = static_cast<int32_t>(call->n_rows);
  table.n_tiles = made.n_tiles;
  table.group = call->key_plane->Group();
  if (recent != nullptr && !made.decodes) {  // few tokens need no copies
    table.places = recent->places;
    table.places_stride = recent->places_stride;
  }
  table.table = reinterpret_cast<int32_t*>(base);
  table.lengths = reinterpret_cast<int32_t*>(base + made.lengths);
  kvarn::cuda::LaunchTileTable(table, call->n_streams, stream);
  if (cudaPeekAtLastError() != cudaSuccess) return KVARN_ERROR_UNSUPPORTED;
  status = kvarn_cuda_mask_map(d.mask, d.mask_sequence_stride, d.mask_token_stride, d.n_sequences,
                               d.n_tokens, table.n_rows, table.group, base + made.map, stream);
  if (status != KVARN_OK || !made.decodes) return status;
  return kvarn_cuda_decode_plan(&d, base + made.decode, stream);
}

kvarn_status kvarn_cuda_attention_run(const kvarn_attention* call, const kvarn_cuda_recent* recent,
                                      void* workspace, void* stream) {
  PlaneAttention made;
  const kvarn_status status = kvarn::cuda::Prepare(call, recent, workspace, &made);
  if (status != KVARN_OK) return status;
  if (!made.decodes) return kvarn_cuda_prefill_run(&made.prefill, stream);
  return kvarn_cuda_decode_run(&made.prefill.attention,
                               static_cast<uint8_t*>(workspace) + made.decode, stream);
}
