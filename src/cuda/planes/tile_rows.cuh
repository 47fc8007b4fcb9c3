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

// A loader for the encoder (TileRows). Both kinds are read as words, so that loads do not wait for
// branches.
struct OpenTileRows {
  struct Row {
    const uint32_t* words;
    bool wide;  // fp32, else two fp16 a word
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
    const auto* half = reinterpret_cast<const uint8_t*>(exact + position * dim);
    return {reinterpret_cast<const uint32_t*>(wide ? x + position * x_stride : half), wide};
  }
  __device__ __forceinline__ float Load(const Row& row, int d) const {
    const uint32_t word = row.words[row.wide ? d : d / 2];
    const auto half = static_cast<uint16_t>(d % 2 != 0 ? word >> 16 : word);
    return row.wide ? __uint_as_float(word) : FromHalf(half);
  }
};

// What storing rows had to change, as one lane saw it.
struct StoreCounts {
  unsigned long long zeroed = 0;
  unsigned long long saturated = 0;

  __device__ void AddTo(kvarn_counts* counts) const {
    auto* zeroed_total = reinterpret_cast<unsigned long long*>(&counts->rows_zeroed);
    auto* saturated_total = reinterpret_cast<unsigned long long*>(&counts->values_saturated);
    if (Lane() == 0 && zeroed != 0) atomicAdd(zeroed_total, zeroed);
    if (saturated != 0) atomicAdd(saturated_total, saturated);
  }
};

// A row becomes fp16 in memory, by a warp; one with a NaN or Inf becomes zeros.
template <int kColumns>
__device__ __forceinline__ void StoreRow(const float (&x)[kColumns], int dim, uint16_t* to,
                                         StoreCounts* counts) {
  bool finite = true;
  unsigned beyond = 0;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    finite = finite && (__float_as_uint(x[c]) & 0x7F800000U) != 0x7F800000U;
    beyond += fabsf(x[c]) > 65504.0F ? 1U : 0U;
  }
  const bool keep = __all_sync(0xFFFFFFFFU, finite ? 1 : 0) != 0;
  counts->zeroed += keep ? 0U : 1U;
  counts->saturated += keep ? beyond : 0U;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int d = 32 * c + Lane();
    const float clean = keep ? Clamp(x[c], -65504.0F, 65504.0F) : 0.0F;
    if (d < dim) to[d] = __half_as_ushort(__float2half_rn(clean));
  }
}

// Puts what a slot is to hold into its memory. A warp a row, four at a time.
template <int kColumns>
__device__ void StoreRows(const DevicePlane& plane, const CallRows& rows, int slot) {
  constexpr int kBatch = 4;
  const int dim = plane.p.encode.head_dim;
  const int group = plane.p.encode.group;
  StoreCounts counts;
  for (int first = Warp(); first < group; first += kBatch * kWarps) {
    float x[kBatch][kColumns];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {  // all loads first: they overlap
      const int g = first + kWarps * i;
      const float* from = plane.CallRow(rows.first + g);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int d = 32 * c + Lane();
        x[i][c] = g >= rows.begin && g < rows.end && d < dim ? from[d] : 0.0F;
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int g = first + kWarps * i;
      const bool mine = g >= rows.begin && g < rows.end;
      if (!mine && !rows.alone) continue;
      StoreRow<kColumns>(x[i], dim, plane.ExactTile(slot) + g * dim, &counts);
    }
  }
  if (!rows.counted) counts.AddTo(&plane.Header().counts);
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
