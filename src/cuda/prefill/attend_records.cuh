// SPDX-License-Identifier: Apache-2.0
//
// The record tiles of a block of query rows. A record is copied while the last stage of the one
// before is multiplied; the CTA's warps decode a stage together.
#pragma once

#include "cuda/prefill/queries.cuh"
#include "cuda/prefill/record_copies.cuh"
#include "cuda/prefill/record_tile.cuh"
#include "cuda/prefill/tiles.cuh"
#include "cuda/prefill/weights.cuh"

namespace kvarn::cuda {

template <typename Shape, int kStage>
__device__ __forceinline__ void AttendStage(const PrefillParams& p, const QueryBlock& block,
                                            int tile, unsigned char* shared, int warp, int lane,
                                            RowState<Shape>* state) {
  unsigned char* record = shared + Shape::kRecordAt;
  if (kStage > 0) __syncthreads();  // K and V of the stage before have been read
  DecodeStageKeys<Shape, kStage>(p.call.attention.key_format.bits, record, warp, lane,
                                 shared + Shape::kKeyAt);
  DecodeStageValues<Shape, kStage>(p.call.attention.value_format.bits, record + p.key_bytes, warp,
                                   lane, shared + Shape::kValueAt);
  FenceForMatrices();
  __syncthreads();
  if (kStage == Shape::kStages - 1) {
    const int next = RecordAfter(p, block, shared, tile);
    if (next >= 0) CopyRecords<Shape>(p, block, next, SharedAddress(record));
  }
  StageScores score;
  StageWeights weight;
  Score<Shape, false>(SharedAddress(shared + Shape::kQueryAt),
                      SharedAddress(shared + Shape::kKeyAt), warp, lane, score);
  WeighStage<Shape, kStage>(p, block, tile, RecordIsPlain<Shape>(p, block, shared, tile), shared,
                            warp, lane, score, state, weight);
  StartAccumulateRecord<Shape>(weight, SharedAddress(shared + Shape::kValueAt), lane, state->out);
  WaitProducts<0>();
}

// Outputs stay in the rotated frame, in the order of the values' rows. False if there was nothing.
template <typename Shape>
__device__ __forceinline__ bool AttendRecords(const PrefillParams& p, const QueryBlock& block,
                                              unsigned char* shared, int warp, int lane,
                                              RowState<Shape>* state) {
  int tile = FirstRecord<Shape>(p, block, shared);
  if (tile < 0) return false;
  unsigned char* record = shared + Shape::kRecordAt;
  CopyRecords<Shape>(p, block, tile, SharedAddress(record));
  bool first = true;
#pragma unroll 1
  while (tile >= 0) {
    WaitCopies<0>();
    const bool changes = BalanceChanges<Shape>(p, record, shared + Shape::kBalanceAt, first);
    first = false;
    if (__syncthreads_or(static_cast<int>(changes)) != 0) {
      RotateQueries<Shape>(p, block, reinterpret_cast<const int8_t*>(record + p.key_balance_at),
                           shared + Shape::kQueryAt,
                           reinterpret_cast<float*>(shared + Shape::kUnitAt));
    }
    AttendStage<Shape, 0>(p, block, tile, shared, warp, lane, state);
    if constexpr (Shape::kStages == 2) {
      AttendStage<Shape, 1>(p, block, tile, shared, warp, lane, state);
    }
    tile = RecordAfter(p, block, shared, tile);  // again: not worth a register
  }
  __syncthreads();
  return true;
}

}  // namespace kvarn::cuda
