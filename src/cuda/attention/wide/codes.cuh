// SPDX-License-Identifier: Apache-2.0
//
// Codes of a record as operand A of a product of 64 rows: of each depth step a warp unpacks its own
// row tiles.
#pragma once

#include "cuda/attention/unpack.cuh"

namespace kvarn::cuda {

// kTiles row tiles a step; warp w has kMine of them, kMine * w onwards.
template <int kBits, int kTiles>
class WarpCodes {
 public:
  static constexpr int kMine = kTiles / 4;

  // Factor of field r of the warp's row tile `tile`, as CodeScale has it.
  static constexpr float Scale(int tile, int r) {
    return CodeScale<kBits, false>(tile % kChunk, r);
  }

  //   steps  depth steps of the record; `step` is a constant after unrolling
  __device__ __forceinline__ void Load(const unsigned char* codes, int steps, int step,
                                       unsigned warp, int lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const unsigned tile = kMine * warp + c * kChunk;
      const unsigned place = tile % kSpan;  // in the half; 0 where chunks are whole halves
      const uint2 words = Half(codes, step * kHalves, kHalves % 2 == 0 ? tile / kSpan : 0, lane);
      low_[c][0] = words.x;
      low_[c][1] = words.y;
      if constexpr (kChunk < kSpan) {
        low_[c][0] >>= 2 * kPlaneBits * place;
        low_[c][1] >>= 2 * kPlaneBits * place;
      }
      if constexpr (kBits == 3) {
        const unsigned pair = step * kTiles + tile;
        const unsigned char* high_plane = codes + (steps * kTiles + 7) / 8 * 512;
        const uint2 bits = Half(high_plane, 0, pair / 16 * 2 + pair / 4 % 2, lane);
        const unsigned shift = pair % 16 / 8 * 8 + 2 * (2 * place % 4) + 2 * place / 4;
        high_[c][0] = bits.x >> shift;
        high_[c][1] = bits.y >> shift;
      }
    }
  }

  // Row tile kMine * warp + tile.
  __device__ __forceinline__ void Operand(int tile, uint32_t (&a)[4]) const {
#pragma unroll
    for (int kh = 0; kh < 2; ++kh) {
#pragma unroll
      for (int r = 0; r < 2; ++r) a[2 * kh + r] = Pair(tile / kChunk, tile % kChunk, kh, r);
    }
  }

 private:
  static constexpr int kPlaneBits = kBits == 3 ? 2 : kBits;
  static constexpr int kSpan = 8 / kPlaneBits;  // pairs in half a unit: two words of a lane
  static constexpr int kChunk = kMine < kSpan ? kMine : kSpan;
  static constexpr int kChunks = kMine / kChunk;
  static_assert(kMine % kChunk == 0 && kSpan % kChunk == 0);

  // Halves of a step. Where they are even in number, those of all steps lie alike in their units.
  static constexpr int kHalves = kTiles / kSpan;
  static_assert(kTiles % kSpan == 0 && (kHalves % 2 == 0 || kHalves == 1));

  // Half `first + more`; only one of them is odd.
  __device__ __forceinline__ static uint2 Half(const unsigned char* plane, int first, unsigned more,
                                               int lane) {
    const unsigned char* own = plane + more / 2 * 512 + more % 2 * 8 + 16 * lane;
    return *reinterpret_cast<const uint2*>(own + first / 2 * 512 + first % 2 * 8);
  }
  // As CodePair, of pair `in` of a chunk.
  __device__ __forceinline__ uint32_t Pair(int c, int in, int kh, int r) const {
    const int field = 2 * in + r;
    const int to = CodeShift<kBits, false>(in, r);
    uint32_t codes = (low_[c][kh] >> (kPlaneBits * field - to)) &
                     BothHalves(((1U << kPlaneBits) - 1U) << static_cast<unsigned>(to));
    if constexpr (kBits == 3) {
      const int from = 2 * (field % 4) + field / 4;
      const int target = to + 2;
      const uint32_t moved =
          from >= target ? high_[c][kh] >> (from - target) : high_[c][kh] << (target - from);
      codes |= moved & BothHalves(4U << static_cast<unsigned>(to));
    }
    return codes;
  }

  uint32_t low_[kChunks][2];
  uint32_t high_[kChunks][2];
};

}  // namespace kvarn::cuda
