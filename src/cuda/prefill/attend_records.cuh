// SPDX-License-Identifier: Apache-2.0
//
// The record tiles of a block of query rows. A record is copied while the last stage of the one
// before is multiplied; the CTA's warps decode a stage together.
#pragma once

#include "cuda/prefill/queries.cuh"
#include "cuda/prefill/record_copies.cuh"
#include "cuda/prefill/record_tile.cuh"
#include "cuda/prefill/weights.cuh"

namespace kvarn::cuda {

template <typename Shape, int kStage>
__device__ __forceinline__ void AttendStage(const PrefillParams& p, const QueryBlock& block,
                                            int tile, int next_tile, bool all_visible,
                                            unsigned char* shared, int warp, int lane,
                                            RowState<Shape>* state) {
  unsigned char* record = shared + Shape::kRecordAt;
  if (kStage > 0) __syncthreads();  // K and V of the stage before have been read
  DecodeStageKeys<Shape, kStage>(p.call.attention.key_format.bits, record, warp, lane,
                                 shared + Shape::kKeyAt);
  DecodeStageValues<Shape, kStage>(p.call.attention.value_format.bits, record + p.key_bytes, warp,
                                   lane, shared + Shape::kValueAt);
  FenceForMatrices();
  __syncthreads();
  if (kStage == Shape::kStages - 1 && next_tile >= 0) {
    CopyRecords<Shape>(p, block, next_tile, SharedAddress(record));
  }
  StageScores score;
  StageWeights weight;
  Score<Shape, false>(SharedAddress(shared + Shape::kQueryAt),
                      SharedAddress(shared + Shape::kKeyAt), warp, lane, score);
  WeighStage<Shape, kStage>(p, block, tile, all_visible, shared, warp, lane, score, state, weight);
  StartAccumulateRecord<Shape>(weight, SharedAddress(shared + Shape::kValueAt), lane, state->out);
  WaitProducts<0>();
}

// Outputs stay in the rotated frame, in the order of the values' rows. False if there was nothing.
template <typename Shape>
__device__ __forceinline__ bool AttendRecords(const PrefillParams& p, const QueryBlock& block,
                                              unsigned char* shared, int warp, int lane,
                                              RowState<Shape>* state) {
  const int begin = max(block.sink_end, FirstVisible(p, block.low)) / Shape::kGroup;
  const int end = RecordEnd<Shape>(p, block, block.high) / Shape::kGroup;
  if (begin >= end) return false;
  unsigned char* record = shared + Shape::kRecordAt;
  CopyRecords<Shape>(p, block, begin, SharedAddress(record));
  const Visible all = VisibleToAll<Shape>(p, block, Part::kRecords);
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    const int position = tile * Shape::kGroup;
    const bool all_visible = position >= all.first && position + Shape::kGroup - 1 <= all.last;
    WaitCopies<0>();
    const bool changes =
        BalanceChanges<Shape>(p, record, shared + Shape::kBalanceAt, tile == begin);
    if (__syncthreads_or(static_cast<int>(changes)) != 0) {
      RotateQueries<Shape>(p, block, reinterpret_cast<const int8_t*>(record + p.key_balance_at),
                           shared + Shape::kQueryAt,
                           reinterpret_cast<float*>(shared + Shape::kUnitAt));
    }
    const int next = tile + 1 < end ? tile + 1 : -1;
    AttendStage<Shape, 0>(p, block, tile, next, all_visible, shared, warp, lane, state);
    if constexpr (Shape::kStages == 2) {
      AttendStage<Shape, 1>(p, block, tile, next, all_visible, shared, warp, lane, state);
    }
  }
  __syncthreads();
  return true;
}

}  // namespace kvarn::cuda
