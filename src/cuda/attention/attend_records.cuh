// SPDX-License-Identifier: Apache-2.0
//
// The records of a warp, one stream of bulk copies across pieces.
#pragma once

#include "cuda/attention/partial.cuh"
#include "cuda/attention/record_copy.cuh"
#include "cuda/attention/record_scores.cuh"
#include "cuda/attention/record_weights.cuh"
#include "cuda/attention/unit_cursor.cuh"

namespace kvarn::cuda {

// The records of a warp: copies run one record ahead.
template <typename Shape>
class RecordStream {
 public:
  __device__ __forceinline__ RecordStream(const DecodeParams& p, unsigned char* memory, int warp,
                                          int lane)
      : p_(p), ahead_(p, kRecordUnits, warp, lane), copy_(memory, lane) {
    if (ahead_.Done()) return;
    PrefetchQueries<Shape>(p, ahead_.sequence(), ahead_.kv_head(), lane);
    if (ahead_.piece() == p.shares[blockIdx.x].first_piece) {
      block_ = p.shares[blockIdx.x].blocks[warp >> p.head_shift];
    } else {
      Locate();
    }
    copy_.IssueKey(Key());
    copy_.IssueValue(Value(), 0);
  }

  __device__ __forceinline__ bool Done() const { return ahead_.Done(); }
  __device__ __forceinline__ const UnitCursor& at() const { return ahead_; }
  __device__ __forceinline__ RecordCopy<Shape>& copy() { return copy_; }
  __device__ __forceinline__ const unsigned char* Key() const {
    return static_cast<const unsigned char*>(p_.call.key_records) +
           block_ * p_.call.key_block_stride + ahead_.kv_head() * p_.call.key_head_stride;
  }
  __device__ __forceinline__ const unsigned char* Value() const {
    return static_cast<const unsigned char*>(p_.call.value_records) +
           block_ * p_.call.value_block_stride + ahead_.kv_head() * p_.call.value_head_stride;
  }
  __device__ __forceinline__ void Next() {
    ahead_.Next(p_);
    if (!ahead_.Done()) Locate();
  }

 private:
  __device__ __forceinline__ void Locate() {
    const int tile = ahead_.first_position() / Shape::kGroup + ahead_.unit();
    block_ =
        p_.call.block_table[static_cast<int64_t>(ahead_.sequence()) * p_.call.block_table_stride +
                            tile];
  }

  const DecodeParams& p_;
  UnitCursor ahead_;
  RecordCopy<Shape> copy_;
  int64_t block_ = 0;
};

template <typename Shape, bool kGeneral>
__device__ __forceinline__ void AttendRecords(const DecodeParams& p, unsigned char* memory,
                                              RecordStream<Shape>* stream, int warp, int lane) {
  using State = PieceState<Shape>;
  if (stream->Done()) return;
  auto* operand = reinterpret_cast<uint2*>(memory + Shape::kQueryAt);
  const unsigned char* key = memory + Shape::kKeyAt;
  RecordCopy<Shape>& copy = stream->copy();
  constexpr int kBalanceWords = Shape::kKeyDim / 4;
  constexpr int kBalanceParts = (kBalanceWords + kWarpSize - 1) / kWarpSize;
  State state;
  ColumnRules<State::kColumns> rules = {};
  float unit[State::kColumns] = {};
  uint32_t balance[kBalanceParts] = {};
  const unsigned char* record = stream->Key();
  int piece = stream->at().piece();
  int sequence = stream->at().sequence();
  int kv_head = stream->at().kv_head();
  int position = stream->at().first_position() + stream->at().unit() * Shape::kGroup;
  stream->Next();
  int buffer = 0;
  bool fresh = true;  // first record of a piece: its s is read from memory while it is copied
  for (;;) {
    const unsigned char* e = (fresh ? record : key) + Shape::kKey.balance;
    if (!fresh) copy.WaitKey();
    bool same = !fresh;
#pragma unroll
    for (int i = 0; i < kBalanceParts; ++i) {
      const int w = kWarpSize * i + lane;
      const uint32_t word = w < kBalanceWords ? reinterpret_cast<const uint32_t*>(e)[w] : 0;
      same = same && word == balance[i];
      balance[i] = word;
    }
    if (!__all_sync(0xFFFFFFFFU, same)) {
      RotateQueries<Shape>(p, sequence, kv_head, reinterpret_cast<const int8_t*>(e), operand, lane,
                           unit);
    }
    if (fresh) {
      state.Reset();
      if constexpr (kGeneral) {
        rules = RulesOf<State::kColumns>(p, sequence, p.pieces[piece].length, kv_head, lane);
      }
      copy.WaitKey();
    }
    Scores<Shape> score;
    float offset[State::kColumns];
    ScoreRecord<Shape>(key, operand, lane, score, offset);
    const bool more = !stream->Done();
    if (more) {
      copy.IssueKey(stream->Key());
      if constexpr (Shape::kValueBuffers == 2) copy.IssueValue(stream->Value(), buffer ^ 1);
    }
    const unsigned char* value = memory + Shape::kValueAt + buffer * Shape::kValueBuffer;
    copy.WaitValue(buffer);
    uint32_t weight[Shape::kColumnTiles][Shape::kTokenTiles][2];
    float zero_sum[State::kColumns];
    WeighRecord<Shape, kGeneral>(value, rules, position, lane, fresh, score, offset, unit, &state,
                                 weight, zero_sum);
    AccumulateRecord<Shape>(value, lane, weight, zero_sum, &state);
    if constexpr (Shape::kValueBuffers == 1) {
      __syncwarp();
      if (more) copy.IssueValue(stream->Value(), 0);
    } else {
      buffer ^= 1;
    }
    fresh = !more || stream->at().piece() != piece;
    if (fresh) {
      StorePartial<Shape>(p, piece, false, warp, lane, &state);
      if (!more) return;
      record = stream->Key();
      piece = stream->at().piece();
      sequence = stream->at().sequence();
      kv_head = stream->at().kv_head();
    }
    if (kGeneral || fresh) {
      position = stream->at().first_position() + stream->at().unit() * Shape::kGroup;
    }
    stream->Next();
  }
}

}  // namespace kvarn::cuda
