// SPDX-License-Identifier: Apache-2.0
//
// The units of one kind that a warp does, piece by piece.
#pragma once

#include "cuda/attention/params.h"
#include "cuda/attention/shape.h"
#include "cuda/attention/softmax.cuh"

namespace kvarn::cuda {

class UnitCursor {
 public:
  __device__ __forceinline__ UnitCursor(const DecodeParams& p, int kind, int warp, int lane)
      : kind_(kind), warp_(warp), lane_(lane) {
    const int4* share = reinterpret_cast<const int4*>(p.shares + blockIdx.x);
    const int4 range = share[0];
    const int4 a = share[1];
    const int2 b = *reinterpret_cast<const int2*>(share + 2);
    piece_ = range.x;
    end_ = range.y;
    step_ = p.n_warps >> p.head_shift;
    unit_ = last_ = 0;
    if (piece_ >= end_ || Take(p, a, b)) return;
    Next(p);
  }

  __device__ __forceinline__ bool Done() const { return unit_ >= last_; }
  __device__ __forceinline__ int piece() const { return piece_; }
  __device__ __forceinline__ int unit() const { return unit_; }  // of the segment
  __device__ __forceinline__ int sequence() const { return sequence_; }
  __device__ __forceinline__ int kv_head() const { return kv_head_; }
  __device__ __forceinline__ int first_position() const { return first_position_; }

  __device__ __forceinline__ void Next(const DecodeParams& p) {
    unit_ += step_;
    if (unit_ < last_) return;
    while (++piece_ < end_) {
      const int4* words = reinterpret_cast<const int4*>(p.pieces + piece_);
      if (Take(p, words[0], *reinterpret_cast<const int2*>(words + 1))) return;
    }
  }

 private:
  // a, b: the first six fields of piece_. False if this warp has nothing to do in it.
  __device__ __forceinline__ bool Take(const DecodeParams& p, const int4& a, const int2& b) {
    if (a.z != kind_) return false;
    const int sub = warp_ >> p.head_shift;
    if (sub >= b.x) {
      MarkEmpty(p);
      return false;
    }
    sequence_ = a.x;
    kv_head_ = a.y + (warp_ & ((1 << p.head_shift) - 1));
    unit_ = a.w + sub;
    last_ = a.w + b.x;
    first_position_ = b.y;
    return true;
  }
  // The combine kernel looks at the partials of all warps of a piece.
  __device__ __forceinline__ void MarkEmpty(const DecodeParams& p) {
    if (lane_ >= p.query_rows) return;
    p.partial_sums[PartialSlot(p, piece_, warp_) * p.partial_rows + lane_] =
        make_float2(kLowest, 0.0F);
  }

  int kind_, warp_, lane_;
  int piece_, end_, step_;
  int unit_, last_;
  int sequence_ = 0, kv_head_ = 0, first_position_ = 0;
};

}  // namespace kvarn::cuda
