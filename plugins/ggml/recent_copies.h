// SPDX-License-Identifier: Apache-2.0
//
// Exact copies of the tiles that are sealed while a graph writes the rows of a batch ("recent
// seals" of kvarn.h), for the attention nodes of the same graph. Which write is read by which
// nodes, and where the copies lie: a cache tensor holds a block from its write to the last
// attention node that reads it, then the next layer's takes it over, so memory does not grow with
// the number of layers.
#ifndef KVARN_PLUGINS_GGML_RECENT_COPIES_H_
#define KVARN_PLUGINS_GGML_RECENT_COPIES_H_

#include <cstdlib>
#include <memory>
#include <vector>

#include "kv_tensor.h"

namespace kvarn::ggml_plugin {

// The query tokens of an attention node: stream s of [0, n_streams) is first_stream + s of the
// cache, its token t belongs to row s * n_tokens + t of the write.
struct TokenShape {
  int64_t first_stream = 0;
  int64_t n_streams = 0;
  int64_t n_tokens = 0;
  bool operator==(const TokenShape&) const = default;
};

// Copies of all planes of a cache tensor; memory null: none are kept.
struct RecentBlock {
  uint8_t* memory = nullptr;  // [n_streams][heads] of head_stride
  size_t head_stride = 0;
  size_t stream_stride = 0;
  int32_t n_copies = 0;  // room of each plane
  TokenShape tokens;
};

class RecentCopies {
 public:
  // Steps are ascending numbers of nodes. First all writes and reads are told in this order, then
  // Place() gives them memory, then Block() hands it out.
  void Clear();
  // A write of n_rows rows; returns its number.
  int Write(const KvTensor* kv, int64_t n_rows, int step);
  // An attention node; returns the number of the write whose copies it can read, or -1.
  int Read(const KvTensor* kv, const TokenShape& tokens, int step);
  // Some other node touches the cache: what was kept of it may not be read after that.
  void Forget(const KvTensor* kv);
  void Place();
  RecentBlock Block(int write) const;  // write may be -1

 private:
  struct Entry {
    const KvTensor* kv = nullptr;
    int64_t n_rows = 0;
    int begin = 0, end = -1;  // steps of the write and of the last read; -1: nobody reads
    bool over = false;        // another node has touched the cache since
    TokenShape tokens;
    size_t bytes = 0;
    size_t slot = 0;
  };
  struct Slot {
    int free_after = -1;  // step
    size_t bytes = 0;
    size_t offset = 0;
  };
  struct Freer {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };

  std::vector<Entry> entries_;
  std::vector<Slot> slots_;
  std::unique_ptr<uint8_t, Freer> memory_;  // grows to what the largest graph needs
  size_t memory_bytes_ = 0;
  bool short_of_memory_ = false;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_RECENT_COPIES_H_
