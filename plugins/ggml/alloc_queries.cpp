// SPDX-License-Identifier: Apache-2.0
#include "alloc_queries.h"

#include <algorithm>

namespace kvarn::ggml_plugin {
namespace {

// Enough for two tensors a layer of the deepest model, many times over.
constexpr size_t kMaxQueries = 8192;

}  // namespace

AllocQueries& AllocQueries::OfThisThread() {
  thread_local AllocQueries queries;
  return queries;
}

void AllocQueries::Add(const AllocQuery& query) {
  if (queries_.size() >= kMaxQueries) {
    queries_.erase(queries_.begin(), queries_.begin() + kMaxQueries / 2);
  }
  queries_.push_back(query);
}

const AllocQuery* AllocQueries::Find(const void* device, const ggml_tensor* tensor) const {
  for (auto query = queries_.rbegin(); query != queries_.rend(); ++query) {
    if (query->is_kv && query->tensor == tensor && query->device == device) return &*query;
  }
  return nullptr;
}

int64_t AllocQueries::LargestRows(const void* device) const {
  int64_t rows = 0;
  for (auto query = queries_.rbegin(); query != queries_.rend() && query->is_kv; ++query) {
    if (query->device == device) rows = std::max(rows, query->n_rows);
  }
  return rows;
}

std::vector<AllocQuery> AllocQueries::Match(const void* device, size_t size,
                                            size_t alignment) const {
  size_t sum = 0;
  bool has_kv = false;
  for (auto query = queries_.rbegin(); query != queries_.rend(); ++query) {
    if (query->device != device) return {};
    sum += (query->size + alignment - 1) / alignment * alignment;
    has_kv = has_kv || query->is_kv;
    if (sum > size) return {};
    if (sum == size && has_kv) return {(query + 1).base(), queries_.end()};
  }
  return {};
}

}  // namespace kvarn::ggml_plugin
