// SPDX-License-Identifier: Apache-2.0
//
// The records of a worker, one stream of bulk copies across pieces.
#pragma once

#include "cuda/attention/record_copy.cuh"
#include "cuda/attention/unit_cursor.cuh"

namespace kvarn::cuda {

// The records of a worker: copies run one record ahead.
template <typename Shape, bool kGeneral,
          typename Cursor_ = UnitCursor<kRecordUnits, Shape::kWorkerWarps>>
class RecordStream {
 public:
  using Cursor = Cursor_;

  // `share`: what the cursor takes beside the call.
  template <typename... Share>
  __device__ __forceinline__ RecordStream(const DecodeParams& p, unsigned char* memory,
                                          const Share&... share)
      : p_(p), ahead_(p, share...), copy_(memory) {
    if (ahead_.Done()) return;
    if (ahead_.KnowsFirstBlock(p)) {
      block_ = ahead_.first_block();
    } else {
      Locate();
    }
    if (!copy_.Issues()) return;
    copy_.IssueKey(Key());
    copy_.IssueValue(Value(), 0);
  }

  __device__ __forceinline__ bool Done() const { return ahead_.Done(); }
  __device__ __forceinline__ const Cursor& at() const { return ahead_; }
  __device__ __forceinline__ RecordCopy<Shape>& copy() { return copy_; }
  __device__ __forceinline__ const unsigned char* Key() const {
    return static_cast<const unsigned char*>(p_.call.key_records) +
           static_cast<int64_t>(block_) * p_.call.key_block_stride +
           ahead_.kv_head() * p_.call.key_head_stride + OfSequence(p_.call.key_sequence_stride);
  }
  __device__ __forceinline__ const unsigned char* Value() const {
    return static_cast<const unsigned char*>(p_.call.value_records) +
           static_cast<int64_t>(block_) * p_.call.value_block_stride +
           ahead_.kv_head() * p_.call.value_head_stride + OfSequence(p_.call.value_sequence_stride);
  }
  __device__ __forceinline__ TilePlace Place() const {
    return RecordPlace(p_, ahead_.sequence(), ahead_.first_position(), ahead_.unit(),
                       Shape::kGroup);
  }
  __device__ __forceinline__ void Next() {
    ahead_.Next(p_);
    if (!ahead_.Done()) Locate();
  }

 private:
  // Without options there is no table of tiles, and with it no stride.
  __device__ __forceinline__ int64_t OfSequence(int64_t stride) const {
    return kGeneral ? ahead_.sequence() * stride : 0;
  }
  __device__ __forceinline__ void Locate() {
    const int index = ahead_.first_position() / Shape::kGroup + ahead_.unit();
    block_ = p_.blocks[static_cast<int64_t>(ahead_.sequence()) * p_.blocks_stride + index];
  }

  const DecodeParams& p_;
  Cursor ahead_;
  RecordCopy<Shape> copy_;
  int32_t block_ = 0;  // widened where it is used: doing so waits for it
};

}  // namespace kvarn::cuda
