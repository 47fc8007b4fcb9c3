// SPDX-License-Identifier: Apache-2.0
//
// Codes of a record times a matrix in shared memory.
#pragma once

#include "cuda/attention/wide/codes.cuh"
#include "cuda/attention/wide/shape.h"
#include "cuda/common/wgmma.cuh"

namespace kvarn::cuda {

// sum[part] += codes of the warp's row tile `part` times matrix^T.
//   matrix     [8 * kColumnTiles][16 * kSteps] in panels; its writes are fenced and all threads of
//              the warpgroup have passed a barrier
//   meanwhile  called once all products are under way
template <typename Codes, int kSteps, int kParts, int kColumnTiles, typename Meanwhile>
__device__ __forceinline__ void MultiplyCodes(const unsigned char* codes, uint32_t matrix, int warp,
                                              int lane, float (&sum)[kParts][kColumnTiles][4],
                                              const Meanwhile& meanwhile) {
  constexpr int kAhead = kSteps % 8 == 0 ? 8 : 4;  // steps whose words are in registers
  constexpr int kAtOnce = 2;                       // steps whose operands are in registers, twice
  static_assert(kSteps % kAhead == 0);
  constexpr int kRows = kRowsPerColumnTile * kColumnTiles;
  const uint64_t base = Describe(matrix, 16);
#pragma unroll
  for (int block = 0; block < kSteps; block += kAhead) {
    Codes words[kAhead];
#pragma unroll
    for (int s = 0; s < kAhead; ++s) words[s].Load(codes, kSteps, block + s, warp, lane);
#pragma unroll
    for (int first = 0; first < kAhead; first += kAtOnce) {
      uint32_t a[kAtOnce][kParts][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) words[first + i].Operand(part, a[i][part]);
      }
      BeginProducts();
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int s = block + first + i;
        const uint64_t b = base + (PanelBytes(kRows) * (s / 4) + 32 * (s % 4)) / 16;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          MultiplyRegisters<kRows, false, false>(sum[part], a[i][part], b);
        }
      }
      CommitProducts();
      WaitProducts<1>();
    }
  }
  meanwhile();
  WaitProducts<0>();
}

}  // namespace kvarn::cuda
