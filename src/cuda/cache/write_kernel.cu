// SPDX-License-Identifier: Apache-2.0
//
// Writes a step's rows into rings and sinks, and the query statistics of the first tiles. One CTA a
// row, one warp a KV head's K, V or statistics at a time.
#include <cuda_runtime.h>

#include "cuda/cache/query_rms.cuh"
#include "cuda/common/launch_kernel.h"

namespace kvarn::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 32;

// The sequence that a row belongs to, or -1.
__device__ int SequenceOfRow(const AppendParams& p, int row) {
  const int n = p.call.n_sequences;
  if (n == 0 || row < p.call.row_begin[0] || row >= p.call.row_begin[n]) return -1;
  int low = 0;
  int high = n;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (p.call.row_begin[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct ExactRows {
  uint8_t* base;
  int64_t row_stride;
  int64_t head_stride;
  __device__ uint4* At(int64_t row, int head) const {
    return reinterpret_cast<uint4*>(base + row * row_stride + head * head_stride);
  }
};

// Copies a row of at most 32 * 8 values to up to two places; zeros if a value is not finite.
__device__ void CopyRow(const uint8_t* from, int dim, kvarn_dtype dtype, uint4* ring, uint4* sink) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const bool mine = lane < dim / 8;
  uint4 words = make_uint4(0, 0, 0, 0);
  if (mine) words = reinterpret_cast<const uint4*>(from)[lane];
  const bool finite = BothFinite(words.x, dtype) && BothFinite(words.y, dtype) &&
                      BothFinite(words.z, dtype) && BothFinite(words.w, dtype);
  if (!__all_sync(0xFFFFFFFFU, finite)) words = make_uint4(0, 0, 0, 0);
  if (mine && ring != nullptr) ring[lane] = words;
  if (mine && sink != nullptr) sink[lane] = words;
}

__device__ void WriteRms(const AppendParams& p, int row, int64_t ring_row, int head) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int dim = p.call.key_format.head_dim;
  uint16_t* to = QueryRmsRow(p, ring_row, head);
  bool known = true;
  for (int d = lane; d < dim; d += kLanes) {
    const float rms = QueryRms(p, row, head, d);
    known = known && !isnan(rms);
    to[d] = __half_as_ushort(__float2half_rn(rms));
  }
  // An unknown row is marked in its first value.
  if (!__all_sync(0xFFFFFFFFU, known) && lane == 0) to[0] = __half_as_ushort(__float2half_rn(NAN));
}

__global__ void __launch_bounds__(kThreads)
    WriteRowsKernel(const __grid_constant__ AppendParams p) {
  const int row = static_cast<int>(blockIdx.x);
  const int sequence = SequenceOfRow(p, row);
  if (sequence < 0) return;
  const StepRows step = StepOf(p, sequence);
  const int position = step.start + row - step.begin;
  if (position < 0) return;
  const int tile = position / p.group;
  const bool in_ring = tile > (step.length - 1) / p.group - p.call.ring_rows / p.group;
  const bool in_sink = tile == 0 && p.call.sink_rows != nullptr && p.call.sink_rows[sequence] >= 0;
  const bool has_rms = p.call.query != nullptr && tile <= p.call.balance_tile;
  const int64_t ring_row = RingRow(p, sequence, position);
  const int64_t sink_row = in_sink ? int64_t{p.call.sink_rows[sequence]} + position : 0;
  const ExactRows keys = {static_cast<uint8_t*>(p.call.exact_keys), p.call.exact_key_row_stride,
                          p.call.exact_key_head_stride};
  const ExactRows values = {static_cast<uint8_t*>(p.call.exact_values),
                            p.call.exact_value_row_stride, p.call.exact_value_head_stride};
  const int heads = p.call.n_kv_heads;
  for (int i = static_cast<int>(threadIdx.x) / kLanes; i < 3 * heads; i += kThreads / kLanes) {
    const int head = i % heads;
    if (i < heads) {
      CopyRow(static_cast<const uint8_t*>(p.call.new_keys) + row * p.call.new_key_row_stride +
                  head * p.call.new_key_head_stride,
              p.call.key_format.head_dim, p.call.dtype, in_ring ? keys.At(ring_row, head) : nullptr,
              in_sink ? keys.At(sink_row, head) : nullptr);
    } else if (i < 2 * heads) {
      CopyRow(static_cast<const uint8_t*>(p.call.new_values) + row * p.call.new_value_row_stride +
                  head * p.call.new_value_head_stride,
              p.call.value_format.head_dim, p.call.dtype,
              in_ring ? values.At(ring_row, head) : nullptr,
              in_sink ? values.At(sink_row, head) : nullptr);
    } else if (has_rms && in_ring) {
      WriteRms(p, row, ring_row, head);
    }
  }
}

}  // namespace

void LaunchWriteRows(const AppendParams& params, void* stream) {
  LaunchKernel(WriteRowsKernel, dim3(static_cast<unsigned>(params.call.n_rows)), kThreads, params,
               stream);
}

}  // namespace kvarn::cuda
