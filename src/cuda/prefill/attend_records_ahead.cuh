// SPDX-License-Identifier: Apache-2.0
//
// The record tiles of a block of query rows, decoded one stage ahead: keys of the next stage while
// the scores of this one are multiplied, values while its outputs are. One barrier a stage.
#pragma once

#include "cuda/prefill/queries.cuh"
#include "cuda/prefill/record_copies.cuh"
#include "cuda/prefill/record_tile.cuh"
#include "cuda/prefill/weights.cuh"

namespace kvarn::cuda {

// Multiplies stage kStage of a tile, the index-th of the block, while the one after it is decoded.
// Stages lie in two buffers in turn, and so do record pairs, by tile: that of a tile is free once
// its last stage has been decoded.
template <typename Shape, int kStage>
__device__ __forceinline__ void AttendStageAhead(const PrefillParams& p, const QueryBlock& block,
                                                 int tile, int end, unsigned char* shared, int warp,
                                                 int lane, int index, bool all_visible,
                                                 RowState<Shape>* state) {
  constexpr bool kLast = kStage == Shape::kStages - 1;
  constexpr int kNext = kLast ? 0 : kStage + 1;
  const bool more = !kLast || tile + 1 < end;
  const int at = (index & 1) * Shape::kStageBytes;
  const int other = Shape::kStageBytes - at;
  const int record_bytes = p.key_bytes + p.value_bytes;
  const unsigned char* next =
      shared + Shape::kRecordAt + ((tile + (kLast ? 1 : 0)) & 1) * record_bytes;
  StageScores score;
  StageWeights weight;
  StartScore<Shape, false>(SharedAddress(shared + Shape::kQueryAt),
                           SharedAddress(shared + Shape::kKeyAt + at), warp, lane, score);
  if (more) {
    DecodeStageKeys<Shape, kNext>(p.call.attention.key_format.bits, next, warp, lane,
                                  shared + Shape::kKeyAt + other);
  }
  if (kLast && tile + 2 < end) {
    CopyRecords<Shape>(p, block, tile + 2,
                       SharedAddress(shared + Shape::kRecordAt + (tile & 1) * record_bytes));
  }
  WaitProducts<0>();
  WeighStage<Shape, kStage>(p, block, tile, all_visible, shared, warp, lane, score, state, weight);
  StartAccumulateRecord<Shape>(weight, SharedAddress(shared + Shape::kValueAt + at), lane,
                               state->out);
  if (more) {
    DecodeStageValues<Shape, kNext>(p.call.attention.value_format.bits, next + p.key_bytes, warp,
                                    lane, shared + Shape::kValueAt + other);
  }
  WaitProducts<0>();
  FenceForMatrices();
}

// Outputs stay in the rotated frame, in the order of the values' rows. False if there was nothing.
template <typename Shape>
__device__ __forceinline__ bool AttendRecordsAhead(const PrefillParams& p, const QueryBlock& block,
                                                   unsigned char* shared, int warp, int lane,
                                                   RowState<Shape>* state) {
  const int begin = max(block.sink_end, FirstVisible(p, block.low)) / Shape::kGroup;
  const int end = RecordEnd<Shape>(p, block, block.high) / Shape::kGroup;
  if (begin >= end) return false;
  const int record_bytes = p.key_bytes + p.value_bytes;
  const auto record_of = [&](int tile) {
    return shared + Shape::kRecordAt + (tile & 1) * record_bytes;
  };
  const auto rotate = [&](int tile) {
    RotateQueries<Shape>(
        p, block, reinterpret_cast<const int8_t*>(record_of(tile) + p.key_balance_at),
        shared + Shape::kQueryAt, reinterpret_cast<float*>(shared + Shape::kUnitAt));
  };
  CopyRecords<Shape>(p, block, begin, SharedAddress(record_of(begin)));
  if (begin + 1 < end) CopyRecords<Shape>(p, block, begin + 1, SharedAddress(record_of(begin + 1)));
  WaitCopies<0>();
  BalanceChanges<Shape>(p, record_of(begin), shared + Shape::kBalanceAt, true);
  __syncthreads();
  rotate(begin);
  DecodeStageKeys<Shape, 0>(p.call.attention.key_format.bits, record_of(begin), warp, lane,
                            shared + Shape::kKeyAt);
  DecodeStageValues<Shape, 0>(p.call.attention.value_format.bits, record_of(begin) + p.key_bytes,
                              warp, lane, shared + Shape::kValueAt);
  FenceForMatrices();
  __syncthreads();
  int index = 0;
  const Visible all = VisibleToAll<Shape>(p, block, Part::kRecords);
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    const int position = tile * Shape::kGroup;
    const bool all_visible = position >= all.first && position + Shape::kGroup - 1 <= all.last;
    if constexpr (Shape::kStages == 2) {
      AttendStageAhead<Shape, 0>(p, block, tile, end, shared, warp, lane, index++, all_visible,
                                 state);
      WaitCopies<0>();
      __syncthreads();
    }
    AttendStageAhead<Shape, Shape::kStages - 1>(p, block, tile, end, shared, warp, lane, index++,
                                                all_visible, state);
    WaitCopies<0>();
    bool changes = false;
    if (tile + 1 < end) {
      changes = BalanceChanges<Shape>(p, record_of(tile + 1), shared + Shape::kBalanceAt, false);
    }
    if (__syncthreads_or(static_cast<int>(changes)) != 0) {
      rotate(tile + 1);
      __syncthreads();
    }
  }
  return true;
}

}  // namespace kvarn::cuda
