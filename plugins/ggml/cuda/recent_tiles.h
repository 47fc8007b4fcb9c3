// SPDX-License-Identifier: Apache-2.0
//
// Copies of the tiles that the rows of a batch belong to (kvarn_cuda_recent_*), kept from the write
// of a layer to its attention. Layers with the same rows take turns in one block.
#ifndef KVARN_PLUGINS_GGML_CUDA_RECENT_TILES_H_
#define KVARN_PLUGINS_GGML_CUDA_RECENT_TILES_H_

#include "cuda/device_block.h"
#include "cuda/turns.h"
#include "kv_tensor.h"
#include "kvarn/kvarn_cuda.h"
#include "node_attention.h"

namespace kvarn::ggml_plugin {

class RecentTiles {
 public:
  explicit RecentTiles(KvMemory* memory) : blocks_(memory) {}

  void BeginGraph() { blocks_.BeginGraph(); }
  // Before the K and V rows of a layer are written; `at` is the block that has the copies then, or
  // null: they need none, or memory is short.
  kvarn_status Keep(const KvTensor* keys, const kvarn_cuda_plane_write (&writes)[2], void* stream,
                    const void** at);
  // The copies for an attention of the tokens whose rows were written last; false: none.
  bool Find(const AttentionJob& job, kvarn_cuda_recent* view) const;

 private:
  struct Block {
    explicit Block(KvMemory* memory) : data(memory) {}
    uint64_t history = 0;
    const KvTensor* keys = nullptr;  // whose tiles it has now
    kvarn_cuda_plane_write writes[2] = {};
    uint8_t* at = nullptr;
    DeviceBlock data;
  };

  Turns<Block> blocks_;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_RECENT_TILES_H_
