// SPDX-License-Identifier: Apache-2.0
//
// Turns the tiles that a step seals into jobs for the encoder: where their rows lie, where their
// records go, and their balance. One CTA a tile and KV head.
#include <cuda_runtime.h>

#include "cuda/cache/balance.cuh"
#include "cuda/common/launch_kernel.h"

namespace kvarn::cuda {
namespace {

// Where the rows of a full tile lie: those before this step in the ring, its own among the new
// ones.
struct TileRows {
  const uint8_t* early;  // of position 0 of the tile
  const uint8_t* later;
  int64_t early_stride, later_stride;
  int later_from;

  __device__ const uint16_t* At(int g) const {
    return reinterpret_cast<const uint16_t*>(g < later_from ? early + g * early_stride
                                                            : later + g * later_stride);
  }
  __device__ void Describe(kvarn_cuda_tile* job) const {
    job->rows = early;
    job->row_stride = early_stride;
    job->later_rows = later;
    job->later_row_stride = later_stride;
    job->later_from = later_from;
  }
};

__device__ TileRows RowsOfTile(const AppendParams& p, const StepRows& step, int sequence, int tile,
                               int head, bool key) {
  const kvarn_cuda_append& c = p.call;
  const int first = tile * p.group;
  const int64_t exact_stride = key ? c.exact_key_row_stride : c.exact_value_row_stride;
  const int64_t new_stride = key ? c.new_key_row_stride : c.new_value_row_stride;
  TileRows rows;
  rows.early = static_cast<const uint8_t*>(key ? c.exact_keys : c.exact_values) +
               RingRow(p, sequence, first) * exact_stride +
               head * (key ? c.exact_key_head_stride : c.exact_value_head_stride);
  rows.later = static_cast<const uint8_t*>(key ? c.new_keys : c.new_values) +
               (int64_t{step.begin} + first - step.start) * new_stride +
               head * (key ? c.new_key_head_stride : c.new_value_head_stride);
  rows.early_stride = exact_stride;
  rows.later_stride = new_stride;
  rows.later_from = min(max(step.start - first, 0), p.group);
  return rows;
}

__device__ uint8_t* Record(const AppendParams& p, int sequence, int tile, int head, bool key) {
  const kvarn_cuda_append& c = p.call;
  const int64_t block = c.block_table[static_cast<int64_t>(sequence) * c.block_table_stride + tile];
  return static_cast<uint8_t*>(key ? c.key_records : c.value_records) +
         block * (key ? c.key_block_stride : c.value_block_stride) +
         head * (key ? c.key_head_stride : c.value_head_stride);
}

// The sequence that seals in this step what `sequence` has as record `tile`, or -1: sequences may
// share a record before it is made, where a prefix is found while a step is still put together.
__device__ int MakerOf(const AppendParams& p, int sequence, int tile, int* found) {
  const auto block = [&](int of) {
    return p.call.block_table[static_cast<int64_t>(of) * p.call.block_table_stride + tile];
  };
  if (threadIdx.x == 0) *found = -1;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.max_seals; i += kBalanceThreads) {
    const int2 seal = p.seals[i];
    if (seal.x >= 0 && seal.y == tile && block(seal.x) == block(sequence)) atomicMax(found, seal.x);
  }
  __syncthreads();
  return *found;
}

// s of a tile: of its own or, from balance_tile on, of that tile.
__device__ void ChooseBalance(const AppendParams& p, StepRows step, int sequence, int tile,
                              int head, int8_t* balance, BalanceShared* shared, int* found) {
  const int dim = p.call.key_format.head_dim;
  const int d = static_cast<int>(threadIdx.x);
  const int from = min(tile, p.call.balance_tile);
  if (from < SealedTiles(p, step.start)) {
    const int maker = MakerOf(p, sequence, from, found);
    if (maker < 0) {
      const auto* sealed =
          reinterpret_cast<const int8_t*>(Record(p, sequence, from, head, true) + p.key.balance);
      if (d < dim) balance[d] = sealed[d];
      return;
    }
    sequence = maker;
    step = StepOf(p, maker);
  }
  const TileRows rows = RowsOfTile(p, step, sequence, from, head, true);
  const int first = from * p.group;
  const auto rms = [&](int g, int c) {
    if (g >= rows.later_from) return RoundedRms(p, step.begin + first + g - step.start, head, c);
    const uint16_t* stored = QueryRmsRow(p, RingRow(p, sequence, first + g), head);
    return __half2float(__ushort_as_half(stored[c]));
  };
  const int eighths = BalanceOf(
      p.group, dim, p.call.query != nullptr,
      [&](int g, int c) { return ToValue(rows.At(g)[c], p.call.dtype); }, rms, shared);
  if (d < dim) balance[d] = static_cast<int8_t>(eighths);
}

__global__ void __launch_bounds__(kBalanceThreads)
    SealJobsKernel(const __grid_constant__ AppendParams p) {
  __shared__ BalanceShared shared;
  __shared__ int found;
  const auto head = static_cast<int>(blockIdx.y);
  const int2 seal = p.seals[blockIdx.x];
  const int64_t index = static_cast<int64_t>(blockIdx.x) * p.call.n_kv_heads + head;
  kvarn_cuda_tile key = {};
  kvarn_cuda_tile value = {};
  if (seal.x >= 0) {
    const StepRows step = StepOf(p, seal.x);
    int8_t* balance = p.balances + index * p.balance_stride;
    ChooseBalance(p, step, seal.x, seal.y, head, balance, &shared, &found);
    RowsOfTile(p, step, seal.x, seal.y, head, true).Describe(&key);
    RowsOfTile(p, step, seal.x, seal.y, head, false).Describe(&value);
    key.balance = balance;
    key.record = Record(p, seal.x, seal.y, head, true);
    value.record = Record(p, seal.x, seal.y, head, false);
    key.written[0] = value.written[0] = ~uint64_t{0};
    key.written[1] = value.written[1] = p.group > 64 ? ~uint64_t{0} : 0;
  }
  if (threadIdx.x == 0) {
    p.key_tiles[index] = key;
    p.value_tiles[index] = value;
  }
}

}  // namespace

void LaunchSealJobs(const AppendParams& params, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.max_seals),
                  static_cast<unsigned>(params.call.n_kv_heads));
  LaunchKernel(SealJobsKernel, grid, kBalanceThreads, params, stream);
}

}  // namespace kvarn::cuda
