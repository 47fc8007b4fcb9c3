// SPDX-License-Identifier: Apache-2.0
//
// One CTA encodes one tile: load, encode in registers, pack from shared memory.
#pragma once

#include "cuda/encode/key.cuh"
#include "cuda/encode/value.cuh"

namespace kvarn::cuda {

// Words of one bit plane in order `cuda` (docs/format.md section 3).
template <bool kKey, int kColumns>
__device__ void PackPlane(const EncodeParams& params, const EncodeShared<kColumns>& shared,
                          int bits, int shift, uint32_t* out) {
  const int rows = RoundUp(params.layout.lanes, kFragment);
  const int depth = RoundUp(params.layout.contraction, kFragment);
  const int row_tiles = rows / kFragment;
  const int pairs = row_tiles * (depth / kFragment);
  const int per_unit = 16 / bits;
  const int half = bits == 1 ? 4 : per_unit / 2;
  const int words = (pairs + per_unit - 1) / per_unit * (kCudaUnitBytes / 4);
  const unsigned mask = (1U << bits) - 1U;
  for (int w = static_cast<int>(threadIdx.x); w < words; w += kEncodeThreads) {
    const int unit = w >> 7;
    const int lane = (w & 127) >> 2;
    const int kh = w & 1;
    const int block = (w >> 1) & 1;
    const int g = lane >> 2;
    const int j = lane & 3;
    uint32_t word = 0;
    for (int bit = 0; bit < 16; bit += bits) {
      int field = bit / bits;
      int in_unit = block * half + field / 2;
      if (bits == 1) {
        field = (bit & 1) * 4 + ((bit & 7) >> 1);
        in_unit = 8 * (bit >> 3) + block * half + field / 2;
      }
      const int pair = unit * per_unit + in_unit;
      if (pair >= pairs) continue;
      const int row = rows / 8 * g + 2 * (pair % row_tiles) + (field & 1);
      if (row >= params.layout.lanes) continue;
      const int s = pair / row_tiles;
      for (int b = 0; b < 2; ++b) {
        const int m =
            kKey ? depth / 4 * j + 4 * s + 2 * kh + b : depth / 4 * j + depth / 8 * b + 2 * s + kh;
        if (m >= params.layout.contraction) continue;
        const unsigned code = kKey ? shared.codes[row][m] : shared.codes[m][row];
        word |= ((code >> shift) & mask) << (bit + 16 * b);
      }
    }
    out[w] = word;
  }
}

// Clears what the encoder does not write: positions without a row, and the padding.
template <int kColumns>
__device__ void ClearTile(const EncodeParams& params, const kvarn_cuda_tile& job,
                          EncodeShared<kColumns>* shared) {
  auto* record = static_cast<uint32_t*>(job.record);
  const int first = static_cast<int>(
      (params.layout.scale < params.layout.other ? params.layout.scale : params.layout.other) / 4);
  for (int w = first + static_cast<int>(threadIdx.x); w < static_cast<int>(params.layout.bytes / 4);
       w += kEncodeThreads) {
    record[w] = 0;
  }
  auto* codes = reinterpret_cast<uint32_t*>(&shared->codes[0][0]);
  constexpr int kWords = kMaxGroup * EncodeShared<kColumns>::kWidth / 4;
  for (int w = static_cast<int>(threadIdx.x); w < kWords; w += kEncodeThreads) codes[w] = 0;
}

// Encodes a tile that has rows, which `rows` finds (TileRows); all threads of the CTA. Has
// barriers, the last before the codes are written.
template <bool kKey, int kColumns, typename Rows>
__device__ void EncodeTileOf(const EncodeParams& params, const kvarn_cuda_tile& job,
                             const Rows& rows, EncodeShared<kColumns>* shared) {
  ListRows(job, params.group, shared);
  ClearTile(params, job, shared);
  __syncthreads();
  TileRegisters<kColumns> tile;
  LoadTile(params, rows, kKey ? job.balance : nullptr, shared, &tile);
  __syncthreads();
  if constexpr (kKey) {
    EncodeKeyTile(params, job, shared, &tile);
  } else {
    EncodeValueTile(params, job, shared, &tile);
  }
  __syncthreads();
  auto* codes = static_cast<uint32_t*>(job.record);
  if (params.bits != 3) {
    PackPlane<kKey>(params, *shared, params.bits, 0, codes);
  } else {
    PackPlane<kKey>(params, *shared, 2, 0, codes);
    PackPlane<kKey>(params, *shared, 1, 2,
                    codes + CudaPlaneBytes(2, params.layout.lanes, params.layout.contraction) / 4);
  }
  if (threadIdx.x == 0 && params.counts != nullptr) {
    auto* zeroed = reinterpret_cast<unsigned long long*>(&params.counts->rows_zeroed);
    auto* saturated = reinterpret_cast<unsigned long long*>(&params.counts->values_saturated);
    if (shared->rows_zeroed != 0) atomicAdd(zeroed, shared->rows_zeroed);
    if (shared->saturated != 0) atomicAdd(saturated, shared->saturated);
  }
}

template <bool kKey, int kColumns>
__global__ void __launch_bounds__(kEncodeThreads, kColumns <= 4 ? 2 : 1)
    EncodeKernel(const __grid_constant__ EncodeParams params) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const kvarn_cuda_tile job = params.tiles[blockIdx.x];
  if ((job.written[0] | job.written[1]) == 0) return;
  EncodeTileOf<kKey, kColumns>(params, job, TileRows{job, params.bf16},
                               reinterpret_cast<EncodeShared<kColumns>*>(shared_bytes));
}

// Host side of one instance.
template <bool kKey, int kColumns>
void LaunchEncode(const EncodeParams& params, cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(EncodeShared<kColumns>));
  cudaFuncSetAttribute(EncodeKernel<kKey, kColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kBytes);
  EncodeKernel<kKey, kColumns>
      <<<static_cast<unsigned>(params.n_tiles), kEncodeThreads, kBytes, stream>>>(params);
}

}  // namespace kvarn::cuda
