// SPDX-License-Identifier: Apache-2.0
//
// Decode attention for many query rows of a KV head: one CTA an SM, a warpgroup a record pair at a
// time.
#pragma once

#include "cuda/attention/attend_exact.cuh"
#include "cuda/attention/record_stream.cuh"
#include "cuda/attention/wide/values.cuh"
#include "cuda/common/overlap.cuh"

namespace kvarn::cuda {

template <typename Shape, bool kGeneral>
__device__ __forceinline__ void AttendRecordsWide(const DecodeParams& p, unsigned char* memory,
                                                  RecordStream<Shape, kGeneral>* stream, int warp,
                                                  int lane) {
  using Tile = typename Shape::Tile;
  if (stream->Done()) return;
  const unsigned char* key = memory + Shape::kKeyAt;
  const auto* key_balance = reinterpret_cast<const uint32_t*>(key + Shape::kKey.balance);
  const uint32_t folded = SharedAddress(memory + Shape::kFoldedAt);
  const uint32_t weights = SharedAddress(memory + Shape::kWeightAt);
  auto* inverse = reinterpret_cast<float*>(memory + Shape::kBalanceAt) + Shape::kKeyDim * warp;
  auto* columns = reinterpret_cast<WideColumns<Shape>*>(memory + Shape::kColumnsAt);
  auto* rules = reinterpret_cast<ColumnRules<1>*>(memory + Shape::kRulesAt);
  static_assert(sizeof(WideColumns<Shape>) == Shape::kRulesAt - Shape::kColumnsAt);
  static_assert(sizeof(ColumnRules<1>) <= 32);
  const auto queries = [&](int n) {
    return reinterpret_cast<uint2*>(memory + Shape::kQueryAt + n * Shape::kTileQueryBytes);
  };
  RecordCopy<Shape>& copy = stream->copy();
  uint32_t balance[BalanceParts<Tile>()] = {};
  WideState<Shape> state;
  int buffer = 0;
  bool fresh = true;  // first record of a piece: its s is read from memory while it is copied
  while (!stream->Done()) {
    const int piece = stream->at().piece();
    if (fresh) {
      state.Reset();
      const int row = kWarpSize * warp + lane;
      if (row < Shape::kQueryRows) columns->top[row] = kLowest;
      if (kGeneral && row < Shape::kQueryRows) {
        const int length = stream->at().LengthOf(p, piece);
        ColumnRules<1> rule = {};
        rule.cap = p.call.softcap * kLog2E;
        SetRules(p, stream->at().sequence(), length, stream->at().kv_head(), row, 0, &rule);
        rules[row] = rule;
      }
    } else {
      copy.WaitKey();
    }
    bool same = !fresh;
    if (!fresh) same = HasBalance<Tile>(key_balance, balance, lane);
    if (!__all_sync(0xFFFFFFFFU, same)) {
#pragma unroll 1
      for (int n = warp; n < Shape::kColumnTiles; n += kGroupWarps) {
        const unsigned char* from = (fresh ? stream->Key() : key) + Shape::kKey.balance;
        float unit[2];
        RotateQueries<Tile, kGeneral>(p, stream->at().sequence(), stream->at().kv_head(), 8 * n,
                                      reinterpret_cast<const uint32_t*>(from), queries(n), inverse,
                                      lane, balance, unit);
        if (lane < 4) {
          *reinterpret_cast<float2*>(columns->unit + 8 * n + 2 * lane) =
              make_float2(unit[0], unit[1]);
        }
      }
    }
    if (fresh) copy.WaitKey();
#pragma unroll 1
    for (int n = warp; n < Shape::kColumnTiles; n += kGroupWarps) {
      FoldQueries<Shape>(key, queries(n), n, lane, folded, columns);
    }
    FenceForMatrices();
    SyncWorker<kGroupWarps>();
    WideScores<Shape> score;
    ScoreWide<Shape>(key, folded, *columns, warp, lane, score);
    const TilePlace place = kGeneral ? stream->Place() : 0;
    stream->Next();  // its block number comes while weights are computed
    const unsigned char* value = memory + Shape::kValueAt + buffer * Shape::kValueBuffer;
    copy.WaitValue(buffer);
    WeighWide<Shape, kGeneral>(value, rules, place, fresh, warp, lane, weights, score, columns,
                               &state);
    // All have read the key, and the value before this one.
    const bool more = !stream->Done();
    AccumulateWide<Shape>(value, weights, *columns, warp, lane, &state, [&] {
      if (!more || !copy.Issues()) return;
      copy.IssueKey(stream->Key());
      copy.IssueValue(stream->Value(), buffer ^ 1);
    });
    buffer ^= 1;
    fresh = !more || stream->at().piece() != piece;
    if (fresh) StoreWide<Shape>(p, piece, warp, lane, columns, state);
  }
}

template <typename Shape, bool kGeneral>
__global__ void __maxnreg__(Shape::kRegisters)
    WideDecodeKernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  LetNextBegin();
  const int lane = ThreadOfWorker<1>();
  // From one lane, so that the compiler knows them to be the same in all.
  const int warp = __shfl_sync(0xFFFFFFFFU, WorkerIndex<1>(), 0) % kGroupWarps;
  const int worker = __shfl_sync(0xFFFFFFFFU, WorkerIndex<kGroupWarps>(), 0);
  unsigned char* memory = shared + worker * Shape::kWorkerBytes;
  RecordStream<Shape, kGeneral> stream(p, memory);
#pragma unroll 1
  for (int n = warp; n < Shape::kColumnTiles; n += kGroupWarps) {
    auto* queries = reinterpret_cast<uint2*>(memory + Shape::kQueryAt + n * Shape::kTileQueryBytes);
    AttendExact<typename Shape::Tile, kGeneral, UnitCursor<kExactUnits, kGroupWarps>>(p, queries,
                                                                                      8 * n, lane);
  }
  AttendRecordsWide<Shape, kGeneral>(p, memory, &stream, warp, lane);
}

}  // namespace kvarn::cuda
