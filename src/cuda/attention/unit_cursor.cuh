// SPDX-License-Identifier: Apache-2.0
//
// The units of one kind that a worker does, piece by piece.
#pragma once

#include "cuda/attention/params.h"
#include "cuda/attention/shape.h"
#include "cuda/attention/softmax.cuh"
#include "cuda/attention/worker.cuh"

namespace kvarn::cuda {

// Where a worker leaves its part of a piece, by query row: maximum (log2) and sum, output [Dv].
struct StoredPartial {
  const DecodeParams& p;
  int64_t slot;

  __device__ __forceinline__ int64_t At(int row) const { return slot * p.partial_rows + row; }
  __device__ __forceinline__ float2* Sums(int row) const { return p.partial_sums + At(row); }
  template <int kValueDim>
  __device__ __forceinline__ float* Outs(int row) const {
    return p.partial_outs + At(row) * kValueDim;
  }
};

// State that lives across the loop over records is kept small: registers are short there.
template <UnitKind kKind, int kWarps>
class UnitCursor {
 public:
  __device__ __forceinline__ explicit UnitCursor(const DecodeParams& p) {
    const DecodeShare& share = p.shares[blockIdx.x];
    const int4 range = reinterpret_cast<const int4*>(&share)[0];
    // Asked for before the range is known: each would be a wait of its own.
    const int4 a = reinterpret_cast<const int4*>(share.pieces)[0];
    const int2 b = reinterpret_cast<const int2*>(share.pieces)[2];
    first_block_ = share.blocks[WorkerIndex<kWarps>() >> p.head_shift];
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

  __device__ __forceinline__ DecodePiece Piece(const DecodeParams& p) const {
    return PieceOfShare(p, p.shares[blockIdx.x], piece_);
  }
  // From a unit to the next one of this worker.
  __device__ __forceinline__ static int Stride(const DecodeParams& p) {
    return p.n_warps >> p.head_shift;
  }
  // Block of this worker's first unit: known if that is in the first piece of the share.
  __device__ __forceinline__ bool KnowsFirstBlock(const DecodeParams& p) const {
    return piece_ == p.shares[blockIdx.x].first_piece;
  }
  __device__ __forceinline__ int first_block() const { return first_block_; }

  __device__ __forceinline__ void Next(const DecodeParams& p) {
    unit_ += Stride(p);
    if (unit_ >= last_) NextPiece(p);
  }

  // Of a piece that this worker has had units in.
  __device__ __forceinline__ static int LengthOf(const DecodeParams& p, int piece) {
    return PieceOfShare(p, p.shares[blockIdx.x], piece).length;
  }
  __device__ __forceinline__ static StoredPartial PartialOf(const DecodeParams& p, int piece) {
    return {p, PartialSlot(p, piece, WorkerIndex<kWarps>())};
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
  // a, b: the first six fields of piece_. False if this worker has nothing to do in it.
  __device__ __forceinline__ bool Take(const DecodeParams& p, const int4& a, const int2& b) {
    if (a.z != kKind) return false;
    const int sub = Sub(p);
    if (sub >= b.x) {
      MarkEmpty(p);
      return false;
    }
    sequence_ = a.x;
    kv_head_ = a.y + (WorkerIndex<kWarps>() & ((1 << p.head_shift) - 1));
    unit_ = a.w + sub;
    last_ = a.w + b.x;
    first_position_ = b.y;
    return true;
  }
  // Exact units go to the last workers first: a CTA with few units of both kinds has them done side
  // by side, not one after the other.
  __device__ __forceinline__ static int Sub(const DecodeParams& p) {
    const int sub = WorkerIndex<kWarps>() >> p.head_shift;
    return kKind == kExactUnits ? (p.n_warps >> p.head_shift) - 1 - sub : sub;
  }
  // The combine kernel looks at the partials of all workers of a piece.
  __device__ __forceinline__ void MarkEmpty(const DecodeParams& p) {
    const int row = ThreadOfWorker<kWarps>();
    if (row >= p.query_rows) return;
    p.partial_sums[PartialSlot(p, piece_, WorkerIndex<kWarps>()) * p.partial_rows + row] =
        make_float2(kLowest, 0.0F);
  }

  int piece_, end_;
  int unit_, last_;
  int sequence_ = 0, kv_head_ = 0, first_position_ = 0;
  int first_block_;
};

}  // namespace kvarn::cuda
