// SPDX-License-Identifier: Apache-2.0
//
// The units of one kind that a warp does, piece by piece.
#pragma once

#include "cuda/attention/params.h"
#include "cuda/attention/shape.h"
#include "cuda/attention/softmax.cuh"

namespace kvarn::cuda {

__device__ __forceinline__ int WarpIndex() { return static_cast<int>(threadIdx.x) / kWarpSize; }
__device__ __forceinline__ int LaneIndex() { return static_cast<int>(threadIdx.x) % kWarpSize; }

// State that lives across the loop over records is kept small: registers are short there.
template <UnitKind kKind>
class UnitCursor {
 public:
  __device__ __forceinline__ explicit UnitCursor(const DecodeParams& p) {
    const DecodeShare& share = p.shares[blockIdx.x];
    const int4 range = reinterpret_cast<const int4*>(&share)[0];
    // Asked for before the range is known: each would be a wait of its own.
    const int4 a = reinterpret_cast<const int4*>(share.pieces)[0];
    const int2 b = reinterpret_cast<const int2*>(share.pieces)[2];
    first_block_ = share.blocks[WarpIndex() >> p.head_shift];
    piece_ = range.x;
    end_ = range.y;
    unit_ = last_ = 0;
    if (piece_ >= end_ || Take(p, a, b)) return;
    NextPiece(p);
  }

  __device__ __forceinline__ bool Done() const { return unit_ >= last_; }
  __device__ __forceinline__ int piece() const { return piece_; }
  __device__ __forceinline__ int unit() const { return unit_; }  // of the segment
  __device__ __forceinline__ int sequence() const { return sequence_; }
  __device__ __forceinline__ int kv_head() const { return kv_head_; }
  __device__ __forceinline__ int first_position() const { return first_position_; }

  // Block of this warp's first unit, if that is in the first piece of the share.
  __device__ __forceinline__ int first_block() const { return first_block_; }

  __device__ __forceinline__ void Next(const DecodeParams& p) {
    unit_ += p.n_warps >> p.head_shift;
    if (unit_ >= last_) NextPiece(p);
  }

 private:
  __device__ __forceinline__ void NextPiece(const DecodeParams& p) {
    while (++piece_ < end_) {
      const DecodePiece& piece = PieceOfShare(p, p.shares[blockIdx.x], piece_);
      if (Take(p, reinterpret_cast<const int4*>(&piece)[0],
               reinterpret_cast<const int2*>(&piece)[2])) {
        return;
      }
    }
  }
  // a, b: the first six fields of piece_. False if this warp has nothing to do in it.
  __device__ __forceinline__ bool Take(const DecodeParams& p, const int4& a, const int2& b) {
    if (a.z != kKind) return false;
    const int sub = WarpIndex() >> p.head_shift;
    if (sub >= b.x) {
      MarkEmpty(p);
      return false;
    }
    sequence_ = a.x;
    kv_head_ = a.y + (WarpIndex() & ((1 << p.head_shift) - 1));
    unit_ = a.w + sub;
    last_ = a.w + b.x;
    first_position_ = b.y;
    return true;
  }
  // The combine kernel looks at the partials of all warps of a piece.
  __device__ __forceinline__ void MarkEmpty(const DecodeParams& p) {
    if (LaneIndex() >= p.query_rows) return;
    p.partial_sums[PartialSlot(p, piece_, WarpIndex()) * p.partial_rows + LaneIndex()] =
        make_float2(kLowest, 0.0F);
  }

  int piece_, end_;
  int unit_, last_;
  int sequence_ = 0, kv_head_ = 0, first_position_ = 0;
  int first_block_;
};

}  // namespace kvarn::cuda
