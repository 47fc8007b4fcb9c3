// SPDX-License-Identifier: Apache-2.0
//
// The exact rows of a block of query rows: sink, ring and the call's own chunk. K of the next stage
// is copied while V of this one is multiplied, and the other way round.
#pragma once

#include "cuda/prefill/queries.cuh"
#include "cuda/prefill/tiles.cuh"
#include "cuda/prefill/weights.cuh"

namespace kvarn::cuda {

// K or V of a KV head as exact rows.
struct ExactRows {
  const unsigned char* chunk;  // row of the first query token of the sequence
  const unsigned char* kept;   // row 0 of all others
  int64_t chunk_stride, kept_stride;
};
template <bool kKey>
__device__ __forceinline__ ExactRows RowsOf(const PrefillParams& p, const QueryBlock& block) {
  const kvarn_cuda_decode& call = p.call.attention;
  const int64_t head = block.kv_head;
  const int64_t chunk_stride = kKey ? p.call.chunk_key_row_stride : p.call.chunk_value_row_stride;
  return {static_cast<const unsigned char*>(kKey ? p.call.chunk_keys : p.call.chunk_values) +
              head * (kKey ? p.call.chunk_key_head_stride : p.call.chunk_value_head_stride) +
              block.first_token * chunk_stride,
          static_cast<const unsigned char*>(kKey ? call.exact_keys : call.exact_values) +
              head * (kKey ? call.exact_key_head_stride : call.exact_value_head_stride) +
              block.sequence *
                  (kKey ? call.exact_key_sequence_stride : call.exact_value_sequence_stride),
          chunk_stride, kKey ? call.exact_key_row_stride : call.exact_value_row_stride};
}
// Kept row of the first position of a tile: in the sink or the ring, or by the table; any if the
// tile is in the chunk.
template <typename Shape>
__device__ __forceinline__ int KeptRowOfTile(const PrefillParams& p, const QueryBlock& block,
                                             int tile) {
  const kvarn_cuda_decode& call = p.call.attention;
  if (p.listed) return call.tile_table[int64_t{block.sequence} * call.tile_table_stride + tile];
  const int first = tile * Shape::kGroup;
  if (block.sink_rows && first < block.sink_end) return block.sink_row;
  return first < block.start ? RingRowOfTile(call, block.sequence, tile) : 0;
}

// Rows of a stage, all of one tile; zeros behind the last row that any query sees (a weight of 0
// times whatever lies there must be 0).
template <typename Shape, bool kKey>
__device__ __forceinline__ void CopyRows(const PrefillParams& p, const QueryBlock& block, int first,
                                         unsigned char* to) {
  constexpr int kChunks = (kKey ? Shape::kKeyDim : Shape::kValueDim) / 8;
  const ExactRows rows = RowsOf<kKey>(p, block);
  const int tile = first / Shape::kGroup;
  const int place = KeptRowOfTile<Shape>(p, block, tile);
  const bool copied = p.listed && place >= KVARN_CUDA_TILE_CHUNK;  // to the chunk
  const int kept = (copied ? place - KVARN_CUDA_TILE_CHUNK : place) - tile * Shape::kGroup;
  const unsigned char* base = copied ? rows.chunk : rows.kept;
  const int64_t stride = copied ? rows.chunk_stride : rows.kept_stride;
#pragma unroll 4
  for (int index = static_cast<int>(threadIdx.x); index < kStageRows * kChunks;
       index += Shape::kThreads) {
    const int row = index / kChunks;
    const int chunk = index % kChunks;
    const int position = min(first + row, block.high);
    const unsigned char* from = position >= block.start
                                    ? rows.chunk + (position - block.start) * rows.chunk_stride
                                    : base + (kept + position) * stride;
    CopyAsync(SharedAddress(to + PanelOffset(kStageRows, row, chunk)), from + 16 * chunk,
              first + row <= block.high);
  }
}

// The stages of a block: the sink's, then the open ones; or those of its exact tiles.
template <typename Shape>
class ExactStages {
 public:
  __device__ __forceinline__ static ExactStages Of(const PrefillParams& p, const QueryBlock& block,
                                                   unsigned char* shared) {
    ExactStages s = {};
    s.last_ = block.high;
    if (p.listed) {
      s.StartTile(NextTile(p, block, shared, kExactTiles, 0));
      return s;
    }
    const int visible = FirstVisible(p, block.low) / kStageRows * kStageRows;
    s.sink_end_ = block.sink_end;
    s.open_ = max(RecordEnd<Shape>(p, block, block.low), visible);
    s.at_ = visible < block.sink_end ? visible : s.open_;
    return s;
  }
  __device__ __forceinline__ bool Done() const { return at_ > last_; }
  __device__ __forceinline__ StageColumns at() const {
    return {at_ < sink_end_ ? Part::kSink : Part::kOpen, at_, at_ + kStageRows - 1, at_};
  }
  __device__ __forceinline__ void Next(const PrefillParams& p, const QueryBlock& block,
                                       unsigned char* shared) {
    const bool sink = at_ < sink_end_;
    at_ += kStageRows;
    if (p.listed && at_ % Shape::kGroup == 0) {
      StartTile(NextTile(p, block, shared, kExactTiles, at_ / Shape::kGroup));
    }
    if (sink && at_ >= sink_end_) at_ = open_;
  }

 private:
  __device__ __forceinline__ void StartTile(int tile) {
    at_ = tile < 0 ? last_ + 1 : tile * Shape::kGroup;
  }

  int at_, sink_end_, open_, last_;
};

// Whether all rows of the block see all of a stage.
template <typename Shape>
__device__ __forceinline__ bool StageIsPlain(const PrefillParams& p, const QueryBlock& block,
                                             unsigned char* shared, const StageColumns& at) {
  if (p.listed) return IsPlainTile(p, shared, at.first / Shape::kGroup);
  const Visible all = VisibleToAll<Shape>(p, block, at.part);
  return at.first >= all.first && at.last <= all.last;
}

template <typename Shape, bool kBf16>
__device__ __forceinline__ void AttendExact(const PrefillParams& p, const QueryBlock& block,
                                            unsigned char* shared, int warp, int lane,
                                            RowState<Shape>* state) {
  unsigned char* keys = shared + Shape::kKeyAt;
  unsigned char* values = shared + Shape::kValueAt;
  auto stages = ExactStages<Shape>::Of(p, block, shared);
  if (stages.Done()) return;
  CopyRows<Shape, true>(p, block, stages.at().first, keys);
  CommitCopies();
  CopyRows<Shape, false>(p, block, stages.at().first, values);
  CommitCopies();
  LoadQueries<Shape>(p, block, warp, lane, shared + Shape::kQueryAt);
  for (;;) {
    const StageColumns at = stages.at();
    stages.Next(p, block, shared);
    const bool more = !stages.Done();
    StageScores score;
    StageWeights weight;
    WaitCopies<1>();
    FenceForMatrices();
    __syncthreads();
    Score<Shape, kBf16>(SharedAddress(shared + Shape::kQueryAt), SharedAddress(keys), warp, lane,
                        score);
    __syncthreads();
    if (more) CopyRows<Shape, true>(p, block, stages.at().first, keys);
    CommitCopies();
    float unit[2];
    unit[0] = unit[1] = p.call.attention.scale * kLog2E;
    const bool plain = StageIsPlain<Shape>(p, block, shared, at);
    Weigh<Shape, kBf16>(p, block, at, plain, warp, lane, unit, score, state, weight);
    WaitCopies<1>();
    FenceForMatrices();
    __syncthreads();
    AccumulateRows<Shape, kBf16>(weight, SharedAddress(values), lane, state->out);
    if (!more) return;
    __syncthreads();
    CopyRows<Shape, false>(p, block, stages.at().first, values);
    CommitCopies();
  }
}

}  // namespace kvarn::cuda
