// SPDX-License-Identifier: Apache-2.0
//
// What layers of one graph share: a few entries, for full and sliding caches. If a graph needs
// more, they take turns. The same graph takes the same places again, so that no entry's memory has
// to grow while the graph is recorded.
#ifndef KVARN_PLUGINS_GGML_CUDA_TURNS_H_
#define KVARN_PLUGINS_GGML_CUDA_TURNS_H_

#include <span>
#include <vector>

#include "kv_memory.h"

namespace kvarn::ggml_plugin {

// Entry is made from the memory that its blocks lie in.
template <typename Entry>
class Turns {
 public:
  explicit Turns(KvMemory* memory) : memory_(memory) { entries_.reserve(kMost); }

  // Entries of the graph before are void; they keep their memory.
  void BeginGraph() { n_used_ = next_ = 0; }
  std::span<Entry> used() { return {entries_.data(), n_used_}; }
  std::span<const Entry> used() const { return {entries_.data(), n_used_}; }
  // One more, which may have been in use until now.
  Entry* Take() {
    const size_t place = n_used_ < kMost ? n_used_++ : next_++ % kMost;
    if (place == entries_.size()) entries_.emplace_back(memory_);
    return &entries_[place];
  }

 private:
  static constexpr size_t kMost = 4;

  KvMemory* memory_;
  std::vector<Entry> entries_;
  size_t n_used_ = 0;
  size_t next_ = 0;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_TURNS_H_
