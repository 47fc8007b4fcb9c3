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
  __device__ __forceinline__ RecordStream(const DecodeParams& p, unsigned char* memory)
      : p_(p), ahead_(p), copy_(memory) {
    if (ahead_.Done()) return;
    if (ahead_.piece() == p.shares[blockIdx.x].first_piece) {
      block_ = ahead_.first_block();
    } else {
      Locate();
    }
    if (!copy_.Issues()) return;
    copy_.IssueKey(Key());
    copy_.IssueValue(Value(), 0);
  }

  __device__ __forceinline__ bool Done() const { return ahead_.Done(); }
  __device__ __forceinline__ const UnitCursor<kRecordUnits>& at() const { return ahead_; }
  __device__ __forceinline__ RecordCopy<Shape>& copy() { return copy_; }
  __device__ __forceinline__ const unsigned char* Key() const {
    return static_cast<const unsigned char*>(p_.call.key_records) +
           static_cast<int64_t>(block_) * p_.call.key_block_stride +
           ahead_.kv_head() * p_.call.key_head_stride;
  }
  __device__ __forceinline__ const unsigned char* Value() const {
    return static_cast<const unsigned char*>(p_.call.value_records) +
           static_cast<int64_t>(block_) * p_.call.value_block_stride +
           ahead_.kv_head() * p_.call.value_head_stride;
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
  UnitCursor<kRecordUnits> ahead_;
  RecordCopy<Shape> copy_;
  int32_t block_ = 0;  // widened where it is used: doing so waits for it
};

template <typename Shape, bool kGeneral>
__device__ __forceinline__ void AttendRecords(const DecodeParams& p, unsigned char* memory,
                                              RecordStream<Shape>* stream, int warp, int lane) {
  using State = PieceState<Shape>;
  if (stream->Done()) return;
  const auto* operand = reinterpret_cast<const uint2*>(memory + Shape::kQueryAt);
  const unsigned char* key = memory + Shape::kKeyAt;
  const auto* key_balance = reinterpret_cast<const uint32_t*>(key + Shape::kKey.balance);
  RecordCopy<Shape>& copy = stream->copy();
  constexpr int kBalanceWords = Shape::kKeyDim / 4;
  constexpr int kBalanceParts = BalanceParts<Shape>();
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
    bool same = !fresh;
    if (!fresh) {
      copy.WaitKey();
#pragma unroll
      for (int i = 0; i < kBalanceParts; ++i) {
        const int w = kWarpSize * i + lane;
        same = same && (w >= kBalanceWords || key_balance[w] == balance[i]);
      }
    }
    if (!__all_sync(0xFFFFFFFFU, same)) {
      const unsigned char* e = (fresh ? record : key) + Shape::kKey.balance;
      RotateQueries<Shape>(p, sequence, kv_head, reinterpret_cast<const uint32_t*>(e), memory, lane,
                           balance, unit);
    }
    if (fresh) {
      state.Reset();
      if constexpr (kGeneral) {
        const int length = PieceOfShare(p, p.shares[blockIdx.x], piece).length;
        rules = RulesOf<State::kColumns>(p, sequence, length, kv_head, lane);
      }
      copy.WaitKey();
    }
    Scores<Shape> score;
    float offset[State::kColumns];
    ScoreRecord<Shape>(key, operand, lane, score, offset);
    const bool more = !stream->Done();
    __syncwarp();  // all lanes have read the key
    if (more && copy.Issues()) {
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
      if (more && copy.Issues()) copy.IssueValue(stream->Value(), 0);
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
