// SPDX-License-Identifier: Apache-2.0
//
// The record tiles of a block of query rows. A record is copied while the last stage of the one
// before is multiplied; the CTA's warps decode a stage together.
#pragma once

#include "cuda/prefill/queries.cuh"
#include "cuda/prefill/record_tile.cuh"
#include "cuda/prefill/weights.cuh"

namespace kvarn::cuda {

// Copies the record pair of a tile.
template <typename Shape>
__device__ __forceinline__ void CopyRecords(const PrefillParams& p, const QueryBlock& block,
                                            int tile, uint32_t to) {
  const kvarn_cuda_decode& call = p.call.attention;
  const int64_t id =
      call.block_table[static_cast<int64_t>(block.sequence) * call.block_table_stride + tile];
  const unsigned char* key = static_cast<const unsigned char*>(call.key_records) +
                             id * call.key_block_stride + block.kv_head * call.key_head_stride;
  const unsigned char* value = static_cast<const unsigned char*>(call.value_records) +
                               id * call.value_block_stride +
                               block.kv_head * call.value_head_stride;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 4
  for (int at = 16 * thread; at < p.key_bytes; at += 16 * kPrefillThreads) {
    CopyAsync(to + at, key + at, true);
  }
#pragma unroll 4
  for (int at = 16 * thread; at < p.value_bytes; at += 16 * kPrefillThreads) {
    CopyAsync(to + p.key_bytes + at, value + at, true);
  }
  CommitCopies();
}

// Whether the 16 bytes of s that this thread has copied differ from those in use, which they
// become.
template <typename Shape>
__device__ __forceinline__ bool BalanceChanges(const PrefillParams& p, const unsigned char* record,
                                               unsigned char* in_use, bool first) {
  constexpr int kPieces = Shape::kKeyDim / 16;
  const int piece =
      (static_cast<int>(threadIdx.x) + kPrefillThreads - p.key_balance_at / 16 % kPrefillThreads) %
      kPrefillThreads;
  if (piece >= kPieces) return first;
  const uint4 now = *reinterpret_cast<const uint4*>(record + p.key_balance_at + 16 * piece);
  uint4* used = reinterpret_cast<uint4*>(in_use) + piece;
  const bool same = now.x == used->x && now.y == used->y && now.z == used->z && now.w == used->w;
  *used = now;
  return first || !same;
}

template <typename Shape, int kStage>
__device__ __forceinline__ void AttendStage(const PrefillParams& p, const QueryBlock& block,
                                            int tile, int next_tile, unsigned char* shared,
                                            int warp, int lane, RowState<Shape>* state) {
  unsigned char* record = shared + Shape::kRecordAt;
  if (kStage > 0) __syncthreads();  // K and V of the stage before have been read
  DecodeStage<Shape, kStage>(p.call.attention.key_format.bits, p.call.attention.value_format.bits,
                             record, record + p.key_bytes, warp, lane, shared + Shape::kKeyAt,
                             shared + Shape::kValueAt);
  FenceForMatrices();
  __syncthreads();
  if (kStage == Shape::kStages - 1 && next_tile >= 0) {
    CopyRecords<Shape>(p, block, next_tile, SharedAddress(record));
  }
  StageScores score;
  StageWeights weight;
  Score<Shape, false>(SharedAddress(shared + Shape::kQueryAt),
                      SharedAddress(shared + Shape::kKeyAt), warp, lane, score);
  const auto* units = reinterpret_cast<const float*>(shared + Shape::kUnitAt);
  float unit[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    unit[i] = units[warp * kWarpRows + 8 * i + lane / 4];
  }
  const int position = tile * Shape::kGroup;
  const StageColumns at = {Part::kRecords, position, position + Shape::kGroup - 1,
                           position + kStageColumnTiles * kStage};
  Weigh<Shape, false>(p, block, at, warp, lane, unit, score, state, weight);
  AccumulateRecord<Shape>(weight, SharedAddress(shared + Shape::kValueAt), lane, state->out);
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
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    WaitCopies<0>();
    const bool changes =
        BalanceChanges<Shape>(p, record, shared + Shape::kBalanceAt, tile == begin);
    if (__syncthreads_or(static_cast<int>(changes)) != 0) {
      RotateQueries<Shape>(p, block, reinterpret_cast<const int8_t*>(record + p.key_balance_at),
                           shared + Shape::kQueryAt,
                           reinterpret_cast<float*>(shared + Shape::kUnitAt));
    }
    const int next = tile + 1 < end ? tile + 1 : -1;
    AttendStage<Shape, 0>(p, block, tile, next, shared, warp, lane, state);
    if constexpr (Shape::kStages == 2) {
      AttendStage<Shape, 1>(p, block, tile, next, shared, warp, lane, state);
    }
  }
  __syncthreads();
  return true;
}

// Chunk of a row of outputs, so that rows and a quad's quarters of a row use different banks.
__device__ __forceinline__ int Scattered(int row, int chunk) {
  return chunk ^ ((row ^ (chunk >> 3 << 1)) & 7);
}

// From the frame of records to the plain one: channels 8n + 2j + i in column 2j + i of tile n.
// Uses the place of K and V.
template <typename Shape>
__device__ __forceinline__ void RotateOutputs(const PrefillParams& p, unsigned char* shared,
                                              int warp, int lane, RowState<Shape>* state) {
  constexpr int kPart = Shape::kValueDim / 4;
  const int g = lane / 4;
  const int j = lane % 4;
  unsigned char* row = shared + Shape::kKeyAt + (8 * warp + g) * Shape::kScratchPitch;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float x[kPart];
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; ++n) {
      x[n] = state->out[n][2 * i];
      x[Shape::kValueTiles + n] = state->out[n][2 * i + 1];
    }
    RotateRow<kPart, true>(x, p.value_small, lane);
    __syncwarp();
#pragma unroll
    for (int c = 0; c < kPart; c += 4) {
      *reinterpret_cast<float4*>(row + 16 * Scattered(g, (kPart * j + c) / 4)) =
          make_float4(x[c], x[c + 1], x[c + 2], x[c + 3]);
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < Shape::kValueTiles; ++n) {
      const float2 y =
          *reinterpret_cast<const float2*>(row + 16 * Scattered(g, 2 * n + j / 2) + 8 * (j % 2));
      state->out[n][2 * i] = y.x * p.value_rotation_scale;
      state->out[n][2 * i + 1] = y.y * p.value_rotation_scale;
    }
  }
  __syncthreads();
}

}  // namespace kvarn::cuda
