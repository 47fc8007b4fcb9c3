// SPDX-License-Identifier: Apache-2.0
//
// The rows of an open tile: in the memory of its slot as fp16, or still among the fp32 rows of the
// call.
#pragma once

#include "cuda/encode/kernel.cuh"
#include "cuda/planes/plane_view.cuh"

namespace kvarn::cuda {

__device__ __forceinline__ float RoundToHalf(float x) {
  return __half2float(__float2half_rn(Clamp(x, -65504.0F, 65504.0F)));
}

// A loader for the encoder (TileRows).
struct OpenTileRows {
  struct Row {
    const float* wide;     // or null
    const uint16_t* half;  // then
  };
  static constexpr bool kToHalf = true;

  const uint16_t* exact;
  const uint8_t* x;  // of position 0
  int64_t x_stride;
  int dim, begin, end;

  __device__ OpenTileRows(const DevicePlane& plane, int slot, const CallRows& rows)
      : exact(plane.ExactTile(slot)),
        x(reinterpret_cast<const uint8_t*>(plane.CallRow(rows.first))),
        x_stride(plane.p.x_row_stride),
        dim(plane.p.encode.head_dim),
        begin(rows.begin),
        end(rows.end) {}

  __device__ __forceinline__ Row At(int position) const {
    const bool wide = position >= begin && position < end;
    return {wide ? reinterpret_cast<const float*>(x + position * x_stride) : nullptr,
            exact + position * dim};
  }
  __device__ __forceinline__ float Load(const Row& row, int d) const {
    return row.wide != nullptr ? row.wide[d] : FromHalf(row.half[d]);
  }
};

// One row as exact fp16, by a warp; a row with a NaN or Inf becomes zeros.
__device__ inline void StoreRow(const float* from, int dim, bool counts_too, kvarn_counts* counts,
                                uint16_t* to) {
  bool finite = true;
  int saturated = 0;
  for (int d = Lane(); d < dim; d += 32) {
    const float x = from[d];
    finite = finite && (__float_as_uint(x) & 0x7F800000U) != 0x7F800000U;
    saturated += fabsf(x) > 65504.0F ? 1 : 0;
  }
  const bool keep = __all_sync(0xFFFFFFFFU, finite ? 1 : 0) != 0;
  for (int d = Lane(); d < dim; d += 32) {
    to[d] = __half_as_ushort(__float2half_rn(keep ? Clamp(from[d], -65504.0F, 65504.0F) : 0.0F));
  }
  if (!counts_too) return;
  auto* total = reinterpret_cast<unsigned long long*>(&counts->values_saturated);
  auto* zeroed = reinterpret_cast<unsigned long long*>(&counts->rows_zeroed);
  if (keep && saturated > 0) atomicAdd(total, static_cast<unsigned long long>(saturated));
  if (!keep && Lane() == 0) atomicAdd(zeroed, 1ULL);
}

// Puts what a slot is to hold into its memory; a warp a row.
__device__ inline void StoreRows(const DevicePlane& plane, const CallRows& rows, int slot) {
  const int dim = plane.p.encode.head_dim;
  for (int g = Warp(); g < plane.p.encode.group; g += kWarps) {
    uint16_t* to = plane.ExactTile(slot) + g * dim;
    if (g >= rows.begin && g < rows.end) {
      StoreRow(plane.CallRow(rows.first + g), dim, !rows.counted, &plane.Header().counts, to);
    } else if (rows.alone) {
      for (int d = Lane(); d < dim; d += 32) to[d] = 0;
    }
  }
}

// Encodes a tile into its record, where its balance lies already; all threads.
template <bool kKey, int kColumns>
__device__ __forceinline__ void EncodeJob(const DevicePlane& plane, const PlaneJob& job,
                                          int8_t* balance, EncodeShared<kColumns>* shared) {
  EncodeParams params = plane.p.encode;
  params.counts = &plane.Header().counts;
  kvarn_cuda_tile tile = {};
  tile.record = plane.Record(job.tile);
  tile.written[0] = job.written.word[0];
  tile.written[1] = job.written.word[1];
  if constexpr (kKey) {
    const auto d = static_cast<int>(threadIdx.x);
    if (d < params.head_dim) balance[d] = static_cast<int8_t>(plane.Balance(job.tile)[d]);
    tile.balance = balance;
    __syncthreads();
  }
  EncodeTileOf<kKey, kColumns>(params, tile, OpenTileRows(plane, job.slot, job.rows), shared);
  __syncthreads();
}

}  // namespace kvarn::cuda
