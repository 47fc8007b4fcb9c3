// SPDX-License-Identifier: Apache-2.0
//
// ggml asks a buffer type for the size of each tensor and then for one buffer of the sum, without
// saying what for. Per thread this remembers the last answers, so that alloc_buffer can tell a KV
// cache from anything else: a KV buffer is one whose size is exactly the sum of the last answers
// and among whose tensors is a cache. Sizes are also asked for without allocating (memory
// estimates), hence no flag that could stick.
#ifndef KVARN_PLUGINS_GGML_ALLOC_QUERIES_H_
#define KVARN_PLUGINS_GGML_ALLOC_QUERIES_H_

#include <cstddef>
#include <vector>

#include "kv_layout.h"

namespace kvarn::ggml_plugin {

struct AllocQuery {
  const ggml_tensor* tensor = nullptr;
  const void* device = nullptr;  // that was asked
  size_t size = 0;               // answer
  bool is_kv = false;
  // Of a KV cache only, copied because the tensor may be gone later:
  ggml_type type = GGML_TYPE_F16;
  int64_t n_rows = 0;
  int64_t n_streams = 0;
  size_t declared_bytes = 0;
  int32_t head_dim = 0;  // guess
  Storage storage = Storage::kPlain;
};

class AllocQueries {
 public:
  static AllocQueries& OfThisThread();

  void Add(const AllocQuery& query);
  // The last answer given for this KV tensor, null if it was not asked for lately.
  const AllocQuery* Find(const void* device, const ggml_tensor* tensor) const;
  // Rows of the largest cache of the context being allocated: the KV queries at the end of the
  // list.
  int64_t LargestRows(const void* device) const;
  // The queries that make up a buffer of `size` bytes with at least one KV cache; empty if none do.
  std::vector<AllocQuery> Match(const void* device, size_t size, size_t alignment) const;

 private:
  std::vector<AllocQuery> queries_;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_ALLOC_QUERIES_H_
