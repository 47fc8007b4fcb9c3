// SPDX-License-Identifier: Apache-2.0
//
// What a warp of a cluster does. A cluster has one KV head of one sequence; its warps, the workers,
// take records from the first one on and exact units from the last one on, so that a worker has
// units of one kind. Neighbouring workers are in different CTAs: few units spread over many
// multiprocessors.
#pragma once

#include "cuda/attention/cluster/ptx.cuh"
#include "cuda/attention/unit_cursor.cuh"

namespace kvarn::cuda {

// The worker that has the first units of its kind is 0.
__device__ __forceinline__ int WorkerOfCluster(const DecodeParams& p, UnitKind kind) {
  const int worker = (WorkerIndex<1>() << p.cluster_shift) + ClusterRank();
  return kind == kRecordUnits ? worker : (p.n_warps << p.cluster_shift) - 1 - worker;
}

struct ClusterShare {
  int sequence, kv_head;
  int n_units[kUnitKinds];
  int n_workers[kUnitKinds];  // that have units
  int blocks[2];              // of this worker's first record, if that is in tile 0 or 1 on

  // Whether this worker has no units at all.
  __device__ __forceinline__ bool IsIdle(const DecodeParams& p) const {
    return WorkerOfCluster(p, kRecordUnits) >= n_workers[kRecordUnits] &&
           WorkerOfCluster(p, kExactUnits) >= n_workers[kExactUnits];
  }
};

__device__ __forceinline__ ClusterShare ShareOfCluster(const DecodeParams& p) {
  const int cluster = static_cast<int>(blockIdx.x) >> p.cluster_shift;
  ClusterShare share;
  share.sequence = cluster / p.call.n_kv_heads;
  share.kv_head = cluster - share.sequence * p.call.n_kv_heads;
  // Asked for before the sequence is known: it would be a wait of its own.
  const int32_t* blocks = p.blocks + static_cast<int64_t>(share.sequence) * p.blocks_stride;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    share.blocks[i] = blocks[min(WorkerOfCluster(p, kRecordUnits) + i, p.blocks_stride - 1)];
  }
  const DecodeSequence& s = p.sequences[share.sequence];
  const int records = share.n_units[kRecordUnits] = s.n_records;
  const int exact = share.n_units[kExactUnits] = s.n_exact;
  const int workers = p.n_warps << p.cluster_shift;
  int for_exact = exact;
  if (records + exact > workers) {
    const float exact_cost = static_cast<float>(exact) * static_cast<float>(p.exact_cost);
    const float cost = static_cast<float>(records) * static_cast<float>(p.record_cost) + exact_cost;
    for_exact = __float2int_rn(exact_cost / cost * static_cast<float>(workers));
    for_exact = min(max(for_exact, min(exact, 1)), workers - min(records, 1));
  }
  share.n_workers[kExactUnits] = min(exact, for_exact);
  share.n_workers[kRecordUnits] = min(records, workers - for_exact);
  return share;
}

// The partial of a worker, in its shared memory where its records were.
template <typename Shape>
struct SharedPartial {
  static constexpr int kOutsAt = 8 * Shape::kQueryRows;
  static constexpr int kBytes = kOutsAt + 4 * Shape::kQueryRows * Shape::kValueDim;
  unsigned char* memory;

  __device__ __forceinline__ static int SumsAt(int row) { return 8 * row; }
  __device__ __forceinline__ static int OutsAt(int row) {
    return kOutsAt + 4 * Shape::kValueDim * row;
  }
  __device__ __forceinline__ float2* Sums(int row) const {
    return reinterpret_cast<float2*>(memory + SumsAt(row));
  }
  template <int>
  __device__ __forceinline__ float* Outs(int row) const {
    return reinterpret_cast<float*>(memory + OutsAt(row));
  }
};

// As UnitCursor, of a cluster. All units of a kind are one piece.
template <UnitKind kKind, typename Shape>
class ClusterCursor {
 public:
  __device__ __forceinline__ ClusterCursor(const DecodeParams& p, const ClusterShare& share)
      : sequence_(share.sequence), kv_head_(share.kv_head), stride_(share.n_workers[kKind]) {
    const DecodeSequence& s = p.sequences[share.sequence];
    first_position_ = FirstPositionOf(s, kKind, Shape::kGroup);
    first_block_ = s.first_tile == 0 ? share.blocks[0] : share.blocks[1];
    const int worker = WorkerOfCluster(p, kKind);
    last_ = share.n_units[kKind];
    unit_ = worker < stride_ ? worker : last_;
  }

  __device__ __forceinline__ bool Done() const { return unit_ >= last_; }
  __device__ __forceinline__ int piece() const { return sequence_; }
  __device__ __forceinline__ int unit() const { return unit_; }
  __device__ __forceinline__ int sequence() const { return sequence_; }
  __device__ __forceinline__ int kv_head() const { return kv_head_; }
  __device__ __forceinline__ int first_position() const { return first_position_; }
  __device__ __forceinline__ int Stride(const DecodeParams&) const { return stride_; }
  __device__ __forceinline__ bool KnowsFirstBlock(const DecodeParams&) const { return true; }
  __device__ __forceinline__ int first_block() const { return first_block_; }
  __device__ __forceinline__ void Next(const DecodeParams&) { unit_ += stride_; }

  __device__ __forceinline__ DecodePiece Piece(const DecodeParams& p) const {
    DecodePiece piece = PieceOf(p.sequences[sequence_], sequence_, kKind, first_position_);
    piece.first_head = kv_head_;
    piece.n_units = last_;
    return piece;
  }
  __device__ __forceinline__ static int LengthOf(const DecodeParams& p, int piece) {
    return p.sequences[piece].length;
  }
  __device__ __forceinline__ static SharedPartial<Shape> PartialOf(const DecodeParams&, int) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __syncwarp();  // all lanes have read the record
    return {shared + WorkerIndex<1>() * Shape::kWarpBytes};
  }

 private:
  int sequence_, kv_head_, stride_;
  int unit_, last_, first_position_, first_block_;
};

}  // namespace kvarn::cuda
