// SPDX-License-Identifier: Apache-2.0
//
// Reads lengths on the device and cuts the step's work into equal shares. One CTA; once a step, for
// all layers of one shape.
#include <cuda_runtime.h>

#include "cuda/attention/launch.h"
#include "cuda/attention/shape.h"
#include "cuda/common/launch_kernel.h"

namespace kvarn::cuda {
namespace {

constexpr int kPlanThreads = 1024;

// Sequences whose rows lie by position.
__device__ DecodeSequence Describe(const DecodeParams& p, int i) {
  const int group = p.call.key_format.group;
  DecodeSequence s = {};
  s.length = max(p.call.lengths[i], 0);
  const int sealed = max(min(p.call.sealed_rows[i], s.length - p.call.n_tokens), 0) / group;
  s.sink_row = p.call.sink_rows != nullptr ? p.call.sink_rows[i] : -1;
  // A chunk without rows may have no entry: then the first one stands in for the next.
  s.ring_row = s.length > sealed * group ? RingRowOfTile(p.call, i, sealed) : 0;
  s.next_ring_row =
      s.length > (sealed + 1) * group ? RingRowOfTile(p.call, i, sealed + 1) : s.ring_row;
  s.first_tile = s.sink_row >= 0 && sealed > 0 ? 1 : 0;
  s.n_records = sealed - s.first_tile;
  s.sink_units = s.first_tile * group / kExactUnitRows;
  // No read leaves the ring, whatever the lengths say.
  const int open = min(s.length - sealed * group, p.call.ring_rows);
  s.n_exact = s.sink_units + (open + kExactUnitRows - 1) / kExactUnitRows;
  return s;
}

// Sum of the values of the threads before this one; `shared` [kPlanThreads / 32].
__device__ int64_t SumBefore(int64_t value, int64_t* shared, int64_t* total) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  int64_t sum = value;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int64_t left = __shfl_up_sync(0xFFFFFFFFU, sum, distance);
    if (lane >= distance) sum += left;
  }
  __syncthreads();
  if (lane == kWarpSize - 1) shared[warp] = sum;
  __syncthreads();
  int64_t before = 0;
  *total = 0;
#pragma unroll
  for (int w = 0; w < kPlanThreads / kWarpSize; ++w) {
    if (w < warp) before += shared[w];
    *total += shared[w];
  }
  return before + sum - value;
}

// What the queries of a sequence see of a tile.
struct TileMask {
  bool seen, plain;
};
__device__ TileMask MaskOfTile(const DecodeParams& p, int sequence, int tile) {
  if (p.call.mask_map == nullptr) return {true, p.call.mask == nullptr};
  const int n_rows = (p.call.n_tokens + KVARN_CUDA_MAP_TOKENS - 1) / KVARN_CUDA_MAP_TOKENS;
  const uint8_t* map = p.call.mask_map + int64_t{sequence} * n_rows * p.call.mask_map_stride + tile;
  unsigned any = 0;
  unsigned all = ~0U;
  for (int i = 0; i < n_rows; ++i) {
    const unsigned bits = map[int64_t{i} * p.call.mask_map_stride];
    any |= bits;
    all &= bits;
  }
  return {(any & KVARN_CUDA_MAP_SEEN) != 0, (all & KVARN_CUDA_MAP_PLAIN) != 0};
}

// Sequences with a tile table, one after the other: their tiles that a query sees are sorted into
// records and exact ones by all threads.
__device__ void ListTiles(const DecodeParams& p, int64_t* shared) {
  constexpr int64_t kExact = int64_t{1} << 32;  // counts of both kinds in one sum
  const int group = p.call.key_format.group;
  const int stride = p.call.tile_table_stride;
  for (int i = 0; i < p.call.n_sequences; ++i) {
    DecodeSequence s = {};
    s.length = max(min(p.call.lengths[i], stride * group), 0);
    s.sink_row = -1;
    const int64_t row = static_cast<int64_t>(i) * stride;
    int64_t listed = 0;
    for (int base = 0; base * group < s.length; base += kPlanThreads) {
      const int tile = base + static_cast<int>(threadIdx.x);
      const bool used = tile * group < s.length;
      int place = used ? p.call.tile_table[row + tile] : KVARN_CUDA_TILE_EMPTY;
      TileMask mask = {};
      if (place != KVARN_CUDA_TILE_EMPTY) mask = MaskOfTile(p, i, tile);
      if (!mask.seen) place = KVARN_CUDA_TILE_EMPTY;
      const int64_t mine = place >= 0 ? kExact : place == KVARN_CUDA_TILE_RECORD ? 1 : 0;
      int64_t total = 0;
      const int64_t before = listed + SumBefore(mine, shared, &total);
      listed += total;
      if (mine == 0) continue;
      const bool exact = place >= 0;
      const int64_t index = 2 * row + (exact ? stride + before / kExact : before % kExact);
      const TilePlace first = tile * group;
      p.listed_tiles[index] = mask.plain && first + group <= s.length ? ~first : first;
      p.listed_places[index] =
          exact ? place
          : p.call.block_table == nullptr
              ? tile
              : p.call.block_table[int64_t{i} * p.call.block_table_stride + tile];
    }
    // Only the last tile may be cut by the length.
    const int n_exact = static_cast<int>(listed / kExact);
    s.n_records = static_cast<int>(listed % kExact);
    s.n_exact = n_exact * (group / kExactUnitRows);
    const int last = (s.length - 1) / group;
    if (n_exact > 0 && p.call.tile_table[row + last] >= 0 && MaskOfTile(p, i, last).seen) {
      s.n_exact -= ((last + 1) * group - s.length) / kExactUnitRows;
    }
    if (threadIdx.x == 0) p.sequences[i] = s;
  }
}

// A place in the order of all units.
struct Place {
  int segment;  // with units, or n_segments
  int unit;
};

// Last index whose value is at most x; values[0] is.
template <typename T>
__device__ int LastAtMost(const T* values, int count, T x) {
  int low = 0;
  int high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (values[middle] <= x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ int CountOf(const DecodeParams& p, int segment) {
  const SegmentIndex at = SegmentAt(p, segment);
  return UnitCount(p.sequences[at.sequence], at.kind);
}

__device__ int64_t CostOf(const DecodeParams& p, int segment) {
  const int64_t count = CountOf(p, segment);
  return count == 0 ? 0 : p.segment_cost + count * UnitCost(p, segment % kUnitKinds);
}

__device__ Place BeginOfShare(const DecodeParams& p, int cta) {
  const int64_t total = p.prefix[p.n_segments];
  const int64_t share = ShareBegin(total, cta, p.n_ctas);
  // Among segments that begin together the last one has the units.
  const int segment = LastAtMost(p.prefix, p.n_segments + 1, share);
  if (segment == p.n_segments) return Place{segment, 0};
  const int count = CountOf(p, segment);
  const int unit = FirstUnitAtOrAfter(share, p.prefix[segment] + p.segment_cost,
                                      UnitCost(p, segment % kUnitKinds), count);
  if (unit < count) return Place{segment, unit};
  return Place{LastAtMost(p.prefix, p.n_segments + 1, p.prefix[segment + 1]), 0};
}

__device__ DecodePiece MakePiece(const DecodeParams& p, const Place& from, int to) {
  const SegmentIndex at = SegmentAt(p, from.segment);
  const DecodeSequence& s = p.sequences[at.sequence];
  DecodePiece piece =
      PieceOf(s, at.sequence, at.kind, FirstPositionOf(s, at.kind, p.call.key_format.group));
  piece.first_head = at.group << p.head_shift;
  piece.first_unit = from.unit;
  piece.n_units = to - from.unit;
  return piece;
}

__device__ void FindBlocks(const DecodeParams& p, DecodeShare* share) {
  const DecodePiece& piece = share->pieces[0];
  const int32_t* blocks = p.blocks + static_cast<int64_t>(piece.sequence) * p.blocks_stride +
                          piece.first_position / p.call.key_format.group + piece.first_unit;
  for (int i = 0; i < min(piece.n_units, kMaxDecodeWarps); ++i) share->blocks[i] = blocks[i];
}

// A piece begins where a segment does and where a CTA's share begins inside one.
__global__ void __launch_bounds__(kPlanThreads) PlanKernel(const __grid_constant__ DecodeParams p) {
  __shared__ int64_t sums[kPlanThreads / kWarpSize];
  __shared__ Place begin_of[kPlanThreads + 1];     // by CTA
  __shared__ int inside_before[kPlanThreads + 1];  // CTAs before that begin inside a segment
  const int thread = static_cast<int>(threadIdx.x);
  if (p.listed_tiles != nullptr) {
    ListTiles(p, sums);
  } else {
    for (int i = thread; i < p.call.n_sequences; i += kPlanThreads) p.sequences[i] = Describe(p, i);
  }
  if (p.cluster_ctas > 0) return;  // clusters find their work in `sequences`
  __syncthreads();
  const int per_thread = (p.n_segments + kPlanThreads - 1) / kPlanThreads;
  const int begin = min(thread * per_thread, p.n_segments);
  const int end = min(begin + per_thread, p.n_segments);
  int64_t cost_here = 0;
  int64_t filled_here = 0;
  for (int segment = begin; segment < end; ++segment) {
    const int count = CountOf(p, segment);
    cost_here += CostOf(p, segment);
    filled_here += count > 0 ? 1 : 0;
  }
  int64_t total = 0;
  int64_t n_filled = 0;
  int64_t prefix = SumBefore(cost_here, sums, &total);
  auto filled = static_cast<int>(SumBefore(filled_here, sums, &n_filled));
  for (int segment = begin; segment < end; ++segment) {
    const int count = CountOf(p, segment);
    p.prefix[segment] = prefix;
    p.filled[segment] = filled;
    prefix += CostOf(p, segment);
    filled += count > 0 ? 1 : 0;
  }
  if (thread == 0) {
    p.prefix[p.n_segments] = total;
    p.filled[p.n_segments] = static_cast<int32_t>(n_filled);
  }
  __syncthreads();
  if (thread <= p.n_ctas) begin_of[thread] = BeginOfShare(p, thread);
  __syncthreads();
  // An empty share begins where the next one does, and has no piece.
  const Place here = begin_of[min(thread, p.n_ctas)];
  const Place next = begin_of[min(thread + 1, p.n_ctas)];
  const bool empty = here.segment == next.segment && here.unit == next.unit;
  const bool inside = thread < p.n_ctas && here.unit > 0 && !empty;
  int64_t n_inside = 0;
  const auto before = static_cast<int>(SumBefore(inside ? 1 : 0, sums, &n_inside));
  if (thread <= p.n_ctas) inside_before[thread] = before;
  __syncthreads();
  const auto piece_at = [&](const Place& place, int cta) {
    return p.filled[place.segment] + inside_before[cta] + (place.unit > 0 ? 1 : 0);
  };
  if (thread < p.n_ctas) {
    const int first = piece_at(here, thread);
    DecodeShare share = {};
    share.first_piece = first;
    share.end_piece = empty ? first : piece_at(next, thread + 1);
    if (!empty) {
      const int to = next.segment == here.segment ? next.unit : CountOf(p, here.segment);
      share.pieces[0] = MakePiece(p, here, to);
      if (inside) p.pieces[first] = share.pieces[0];
      if (share.pieces[0].kind == kRecordUnits) FindBlocks(p, &share);
    }
    p.shares[thread] = share;
  }
  for (int segment = thread; segment <= p.n_segments; segment += kPlanThreads) {
    int low = 0;  // first CTA that begins after this segment's begin
    int high = p.n_ctas;
    while (low < high) {
      const int middle = (low + high) / 2;
      const Place place = begin_of[middle];
      if (place.segment > segment || (place.segment == segment && place.unit > 0)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const int first = p.filled[segment] + inside_before[low];
    p.segment_pieces[segment] = first;
    if (segment == p.n_segments) continue;
    const int count = CountOf(p, segment);
    if (count == 0) continue;
    const bool cut = low < p.n_ctas && begin_of[low].segment == segment;
    p.pieces[first] = MakePiece(p, Place{segment, 0}, cut ? begin_of[low].unit : count);
  }
  __syncthreads();
  if (thread >= p.n_ctas) return;
  DecodeShare& share = p.shares[thread];
  for (int i = 1; i < kSharePieces && share.first_piece + i < share.end_piece; ++i) {
    share.pieces[i] = p.pieces[share.first_piece + i];
  }
}

}  // namespace

void LaunchPlan(const DecodeParams& params, void* stream) {
  LaunchKernel(PlanKernel, dim3(1), kPlanThreads, params, stream);
}

}  // namespace kvarn::cuda
