// SPDX-License-Identifier: Apache-2.0
#include "cuda/recent_tiles.h"

namespace kvarn::ggml_plugin {
namespace {

// Whether copies of the tiles of one layer take the places that those of the other take: layers of
// one model may differ in heads and head dim.
bool SamePlaces(const kvarn_cuda_plane_write (&a)[2], const kvarn_cuda_plane_write (&b)[2]) {
  for (int i = 0; i < 2; ++i) {
    if (kvarn_plane_bytes(a[i].plane) != kvarn_plane_bytes(b[i].plane) ||
        a[i].n_streams != b[i].n_streams || a[i].n_kv_heads != b[i].n_kv_heads ||
        a[i].n_rows != b[i].n_rows) {
      return false;
    }
  }
  return true;
}

}  // namespace

kvarn_status RecentTiles::Keep(const KvTensor* keys, const kvarn_cuda_plane_write (&writes)[2],
                               void* stream, const void** at) {
  *at = nullptr;
  const size_t bytes = kvarn_cuda_recent_bytes(writes);
  if (bytes == 0) return KVARN_OK;
  Block* block = nullptr;
  for (Block& begun : blocks_.used()) {
    if (begun.history == keys->history() && SamePlaces(begun.writes, writes)) block = &begun;
  }
  kvarn_status status = KVARN_OK;
  if (block == nullptr) {
    block = blocks_.Take();
    block->history = keys->history();
    block->at = block->data.Get(bytes);
    block->keys = nullptr;
    if (block->at != nullptr) status = kvarn_cuda_recent_begin(writes, block->at, stream);
  }
  block->writes[0] = writes[0];
  block->writes[1] = writes[1];
  if (block->at == nullptr) return KVARN_OK;  // said already; the batch reads its records
  *at = block->at;
  block->keys = keys;
  return status == KVARN_OK ? kvarn_cuda_recent_copy(writes, block->at, stream) : status;
}

bool RecentTiles::Find(const AttentionJob& job, kvarn_cuda_recent* view) const {
  for (const Block& block : blocks_.used()) {
    if (block.keys != job.keys ||
        block.writes[0].n_rows != job.call.n_streams * job.call.n_tokens) {
      continue;
    }
    const auto stream = static_cast<int32_t>(job.key_tokens.first_stream);
    return kvarn_cuda_recent_view(block.writes, block.at, stream, view) == KVARN_OK;
  }
  return false;
}

}  // namespace kvarn::ggml_plugin
