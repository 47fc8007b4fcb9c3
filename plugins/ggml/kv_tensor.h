// SPDX-License-Identifier: Apache-2.0
//
// One cache tensor kept in planes. To the host it is F16 [E, n_rows, n_stream], contiguous; byte
// offsets below are offsets into that declared layout.
#ifndef KVARN_PLUGINS_GGML_KV_TENSOR_H_
#define KVARN_PLUGINS_GGML_KV_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kv_layout.h"
#include "kv_memory.h"
#include "kvarn/kvarn.h"

namespace kvarn::ggml_plugin {

class KvTensor {
 public:
  // `arena`, in `memory`, belongs to the buffer and is all zero.
  KvTensor(const KvFormat& format, const KvIdentity& identity, const ggml_tensor* tensor,
           KvMemory* memory, uint8_t* arena, size_t arena_bytes, int32_t head_dim_guess);
  ~KvTensor();
  KvTensor(const KvTensor&) = delete;
  KvTensor& operator=(const KvTensor&) = delete;

  const std::string& name() const { return name_; }
  kvarn_role role() const { return role_; }
  int64_t n_embd() const { return n_embd_; }
  int64_t n_rows() const { return n_rows_; }
  int64_t n_streams() const { return n_streams_; }
  size_t row_bytes() const { return static_cast<size_t>(n_embd_) * sizeof(uint16_t); }
  size_t stream_bytes() const { return row_bytes() * static_cast<size_t>(n_rows_); }

  // Lay the planes out for this head dim, moving what is stored if it differs from before. If the
  // library does not support it the cache stays F16 in memory of its own, and plane() is null.
  void SetHeadDim(int32_t head_dim);
  // Lay out for the guess if nothing has shown the head dim yet.
  void EnsureLayout() {
    if (head_dim_ == 0) SetHeadDim(head_dim_guess_);
  }
  int32_t head_dim() const { return head_dim_; }  // 0: not known yet
  int32_t n_heads() const { return static_cast<int32_t>(n_embd_ / head_dim_); }
  int32_t group() const { return format_.preset.group; }
  const kvarn_plane* plane() const { return plane_; }
  size_t head_stride() const { return plane_bytes_; }
  size_t stream_stride() const { return plane_bytes_ * static_cast<size_t>(n_heads()); }
  uint8_t* PlaneMemory(int64_t stream, int64_t head) const {
    return memory_ + static_cast<size_t>(stream) * stream_stride() +
           static_cast<size_t>(head) * plane_bytes_;
  }

  // F16 bytes [offset, offset + size) of the declared layout.
  kvarn_status Read(size_t offset, size_t size, void* out) const;
  // Rows that already hold the bytes given are left alone, so that restoring what is there neither
  // reopens a tile nor drifts.
  kvarn_status Write(size_t offset, size_t size, const void* data);

  // A kernel is about to write planes directly.
  void MarkWritten() { written_ = true; }

  // What decides where rows lie was changed through the functions above, and may now differ between
  // heads, or between K and V.
  bool touched() const { return touched_; }
  void SetTouched(bool touched) { touched_ = touched; }
  // kvarn_plane_life of the planes of a stream, and whether it is the same for all heads.
  struct Life {
    uint64_t number = 0;
    bool agree = true;
  };
  Life LifeOf(int64_t stream) const;
  // Kept by devices that do not see the tables of their planes: caches with equal numbers had the
  // same rows written in the same order.
  uint64_t history() const { return history_; }
  void SetHistory(uint64_t history) { history_ = history; }

  // Rows of `stream` up to the last one that is not all zeros; rows never written are.
  int64_t RowsHeld(int64_t stream) const;
  // Forget all rows of `stream` and write the first n_rows again, in ascending order, so that all
  // planes of this tensor and of any other that is given as many rows have the same life.
  kvarn_status Rewrite(int64_t stream, int64_t n_rows);

  // Copy whole streams between tensors of one geometry; false if that is not what is asked for.
  static bool CopyStreams(const KvTensor& source, size_t source_offset, KvTensor* target,
                          size_t target_offset, size_t size);

  // Forget everything. `arena_is_zero`: the buffer has cleared the arena already.
  void Clear(bool arena_is_zero);
  void ClearStream(int64_t stream);

  void AddStats(kvarn_plane_stats* total) const;

 private:
  struct Span;       // rows of one tile, columns of one head
  class HostPlanes;  // planes of one stream after the other, where the host can reach them
  template <typename Visit>
  kvarn_status ForEachSpan(size_t offset, size_t size, Visit visit) const;
  size_t planes_bytes() const { return stream_stride() * static_cast<size_t>(n_streams_); }
  bool PlacePlanes(size_t bytes);
  void ReleaseOwnMemory();
  // Calls visit(tables of a plane, in the host's memory) for all heads of a stream.
  template <typename Visit>
  void ForEachTable(int64_t stream, Visit visit) const;

  KvMemory* const memory_type_;
  const KvFormat format_;
  const std::string name_;
  const kvarn_role role_;
  const int64_t n_embd_;
  const int64_t n_rows_;
  const int64_t n_streams_;
  uint8_t* const arena_;
  const size_t arena_bytes_;
  const int32_t head_dim_guess_;

  int32_t head_dim_ = 0;
  kvarn_plane* plane_ = nullptr;
  size_t plane_bytes_ = 0;
  uint8_t* memory_ = nullptr;  // of the planes: the arena or own_
  uint8_t* own_ = nullptr;     // mapped here because the arena was too small
  size_t own_bytes_ = 0;
  bool written_ = false;  // anything was written since the last Clear
  bool touched_ = false;
  uint64_t history_ = 0;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_KV_TENSOR_H_
