// SPDX-License-Identifier: Apache-2.0
#include "recent_copies.h"

#include <algorithm>

#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

constexpr size_t kAlignment = 64;

// Tiles that T rows of one sequence can seal, and one that an earlier request left partial.
int32_t Room(const KvTensor& kv, int64_t n_tokens) {
  return static_cast<int32_t>(n_tokens / kv.group()) + 2;
}

}  // namespace

void RecentCopies::Clear() {
  entries_.clear();
  slots_.clear();
}

int RecentCopies::Write(const KvTensor* kv, int64_t n_rows, int step) {
  Forget(kv);
  Entry entry;
  entry.kv = kv;
  entry.n_rows = n_rows;
  entry.begin = step;
  entries_.push_back(entry);
  return static_cast<int>(entries_.size()) - 1;
}

int RecentCopies::Read(const KvTensor* kv, const TokenShape& tokens, int step) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.kv == kv && !entry.over;
  });
  // Single tokens read what is current. Other shapes: fewer queries than rows, or unknown order.
  if (found == entries_.end() || tokens.n_tokens < 2 ||
      tokens.n_streams * tokens.n_tokens != found->n_rows) {
    return -1;
  }
  if (found->end < 0) found->tokens = tokens;
  if (found->tokens != tokens) return -1;
  found->end = step;
  return static_cast<int>(found - entries_.begin());
}

void RecentCopies::Forget(const KvTensor* kv) {
  for (Entry& entry : entries_) entry.over = entry.over || entry.kv == kv;
}

// The first slot whose last reader is past; a slot is as large as its largest user.
void RecentCopies::Place() {
  for (Entry& entry : entries_) {
    if (entry.end < 0) continue;
    const size_t plane =
        kvarn_recent_bytes(entry.kv->plane(), Room(*entry.kv, entry.tokens.n_tokens));
    entry.bytes = (plane + kAlignment - 1) / kAlignment * kAlignment *
                  static_cast<size_t>(entry.tokens.n_streams * entry.kv->n_heads());
    entry.slot = 0;
    while (entry.slot < slots_.size() && slots_[entry.slot].free_after >= entry.begin) ++entry.slot;
    if (entry.slot == slots_.size()) slots_.emplace_back();
    slots_[entry.slot].free_after = entry.end;
    slots_[entry.slot].bytes = std::max(slots_[entry.slot].bytes, entry.bytes);
  }
  size_t bytes = 0;
  for (Slot& slot : slots_) {
    slot.offset = bytes;
    bytes += slot.bytes;
  }
  if (bytes <= memory_bytes_) return;
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, bytes)));
  memory_bytes_ = memory_ == nullptr ? 0 : bytes;
  if (memory_ != nullptr) {
    LogDebug("copies of tiles sealed within a batch: %.2f MiB",
             static_cast<double>(bytes) / 1048576.0);
  } else if (!short_of_memory_) {
    short_of_memory_ = true;
    LogWarn(
        "no memory for exact copies of tiles sealed within a batch: its first tokens read the "
        "quantised rows");
  }
}

RecentBlock RecentCopies::Block(int write) const {
  RecentBlock block;
  if (write < 0 || memory_ == nullptr) return block;
  const Entry& entry = entries_[static_cast<size_t>(write)];
  if (entry.end < 0) return block;
  const auto planes = static_cast<size_t>(entry.tokens.n_streams * entry.kv->n_heads());
  block.memory = memory_.get() + slots_[entry.slot].offset;
  block.head_stride = entry.bytes / planes;
  block.stream_stride = block.head_stride * static_cast<size_t>(entry.kv->n_heads());
  block.n_copies = Room(*entry.kv, entry.tokens.n_tokens);
  block.tokens = entry.tokens;
  return block;
}

}  // namespace kvarn::ggml_plugin
