// SPDX-License-Identifier: Apache-2.0
//
// Attention of a warp to its records, piece by piece.
#pragma once

#include "cuda/attention/partial.cuh"
#include "cuda/attention/record_scores.cuh"
#include "cuda/attention/record_stream.cuh"
#include "cuda/attention/record_weights.cuh"

namespace kvarn::cuda {

template <typename Shape, bool kGeneral, typename Stream>
__device__ __forceinline__ void AttendRecords(const DecodeParams& p, unsigned char* memory,
                                              Stream* stream, int lane) {
  using State = PieceState<Shape>;
  if (stream->Done()) return;
  auto* operand = reinterpret_cast<uint2*>(memory + Shape::kQueryAt);
  auto* inverse = reinterpret_cast<float*>(memory + Shape::kBalanceAt);
  const unsigned char* key = memory + Shape::kKeyAt;
  const auto* key_balance = reinterpret_cast<const uint32_t*>(key + Shape::kKey.balance);
  RecordCopy<Shape>& copy = stream->copy();
  State state;
  ColumnRules<State::kColumns> rules = {};
  float unit[State::kColumns] = {};
  uint32_t balance[BalanceParts<Shape>()] = {};
  const unsigned char* record = stream->Key();
  int piece = stream->at().piece();
  int sequence = stream->at().sequence();
  int kv_head = stream->at().kv_head();
  TilePlace place = kGeneral ? stream->Place() : 0;
  stream->Next();
  int buffer = 0;
  bool fresh = true;  // first record of a piece: its s is read from memory while it is copied
  for (;;) {
    bool same = !fresh;
    if (!fresh) {
      copy.WaitKey();
      same = HasBalance<Shape>(key_balance, balance, lane);
    }
    if (!__all_sync(0xFFFFFFFFU, same)) {
      const unsigned char* e = (fresh ? record : key) + Shape::kKey.balance;
      RotateQueries<Shape, kGeneral>(p, sequence, kv_head, 0, reinterpret_cast<const uint32_t*>(e),
                                     operand, inverse, lane, balance, unit);
    }
    if (fresh) {
      state.Reset();
      if constexpr (kGeneral) {
        const int length = Stream::Cursor::LengthOf(p, piece);
        rules = RulesOf<State::kColumns>(p, sequence, length, kv_head, 0, lane);
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
    WeighRecord<Shape, kGeneral>(value, rules, place, lane, fresh, score, offset, unit, &state,
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
      StorePartial<Shape>(p, Stream::Cursor::PartialOf(p, piece), false, 0, lane, &state);
      if (!more) return;
      record = stream->Key();
      piece = stream->at().piece();
      sequence = stream->at().sequence();
      kv_head = stream->at().kv_head();
    }
    if constexpr (kGeneral) place = stream->Place();
    stream->Next();
  }
}

}  // namespace kvarn::cuda
