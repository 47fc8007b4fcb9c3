// SPDX-License-Identifier: Apache-2.0
//
// The record tiles of a block of query rows, decoded one stage ahead: keys of the next stage while
// the scores of this one are multiplied, values while its outputs are. One barrier a stage.
#pragma once

#include "cuda/prefill/queries.cuh"
#include "cuda/prefill/record_copies.cuh"
#include "cuda/prefill/record_tile.cuh"
#include "cuda/prefill/tiles.cuh"
#include "cuda/prefill/weights.cuh"

namespace kvarn::cuda {

// Multiplies stage kStage of a tile, the index-th of the block, while the one after it is decoded.
// Stages lie in two buffers in turn, and so do record pairs: that of a tile is free once its last
// stage has been decoded.
//   next, later  the tiles after this one, or -1; `later` is read at the last stage only
template <typename Shape, int kStage>
__device__ __forceinline__ void AttendStageAhead(const PrefillParams& p, const QueryBlock& block,
                                                 int tile, int next, int later,
                                                 unsigned char* shared, int warp, int lane,
                                                 int index, bool all_visible,
                                                 RowState<Shape>* state) {
  constexpr bool kLast = kStage == Shape::kStages - 1;
  constexpr int kNext = kLast ? 0 : kStage + 1;
  const bool more = !kLast || next >= 0;
  const int at = (index & 1) * Shape::kStageBytes;
  const int other = Shape::kStageBytes - at;
  const int record_bytes = p.key_bytes + p.value_bytes;
  const int buffer = index / Shape::kStages & 1;
  const unsigned char* record =
      shared + Shape::kRecordAt + (kLast ? buffer ^ 1 : buffer) * record_bytes;
  StageScores score;
  StageWeights weight;
  StartScore<Shape, false>(SharedAddress(shared + Shape::kQueryAt),
                           SharedAddress(shared + Shape::kKeyAt + at), warp, lane, score);
  if (more) {
    DecodeStageKeys<Shape, kNext>(p.call.attention.key_format.bits, record, warp, lane,
                                  shared + Shape::kKeyAt + other);
  }
  if (kLast && later >= 0) {
    CopyRecords<Shape>(p, block, later,
                       SharedAddress(shared + Shape::kRecordAt + buffer * record_bytes));
  }
  WaitProducts<0>();
  WeighStage<Shape, kStage>(p, block, tile, all_visible, shared, warp, lane, score, state, weight);
  StartAccumulateRecord<Shape>(weight, SharedAddress(shared + Shape::kValueAt + at), lane,
                               state->out);
  if (more) {
    DecodeStageValues<Shape, kNext>(p.call.attention.value_format.bits, record + p.key_bytes, warp,
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
  int tile = FirstRecord<Shape>(p, block, shared);
  if (tile < 0) return false;
  int next = RecordAfter(p, block, shared, tile);
  const int record_bytes = p.key_bytes + p.value_bytes;
  const auto record_at = [&](int nth) {
    return shared + Shape::kRecordAt + (nth & 1) * record_bytes;
  };
  const auto rotate = [&](int nth) {
    RotateQueries<Shape>(
        p, block, reinterpret_cast<const int8_t*>(record_at(nth) + p.key_balance_at),
        shared + Shape::kQueryAt, reinterpret_cast<float*>(shared + Shape::kUnitAt));
  };
  CopyRecords<Shape>(p, block, tile, SharedAddress(record_at(0)));
  if (next >= 0) CopyRecords<Shape>(p, block, next, SharedAddress(record_at(1)));
  WaitCopies<0>();
  BalanceChanges<Shape>(p, record_at(0), shared + Shape::kBalanceAt, true);
  __syncthreads();
  rotate(0);
  DecodeStageKeys<Shape, 0>(p.call.attention.key_format.bits, record_at(0), warp, lane,
                            shared + Shape::kKeyAt);
  DecodeStageValues<Shape, 0>(p.call.attention.value_format.bits, record_at(0) + p.key_bytes, warp,
                              lane, shared + Shape::kValueAt);
  FenceForMatrices();
  __syncthreads();
  int index = 0;
#pragma unroll 1
  while (tile >= 0) {
    const bool all_visible = RecordIsPlain<Shape>(p, block, shared, tile);
    const int later = next >= 0 ? RecordAfter(p, block, shared, next) : -1;
    if constexpr (Shape::kStages == 2) {
      AttendStageAhead<Shape, 0>(p, block, tile, next, later, shared, warp, lane, index++,
                                 all_visible, state);
      WaitCopies<0>();
      __syncthreads();
    }
    AttendStageAhead<Shape, Shape::kStages - 1>(p, block, tile, next, later, shared, warp, lane,
                                                index++, all_visible, state);
    WaitCopies<0>();
    const int nth = index / Shape::kStages;
    bool changes = false;
    if (next >= 0) {
      changes = BalanceChanges<Shape>(p, record_at(nth), shared + Shape::kBalanceAt, false);
    }
    if (__syncthreads_or(static_cast<int>(changes)) != 0) {
      rotate(nth);
      __syncthreads();
    }
    tile = next;
    next = later;
  }
  return true;
}

}  // namespace kvarn::cuda
