// SPDX-License-Identifier: Apache-2.0
//
// Codes of a record (docs/format.md section 3, order cuda) as fp16 numbers: under the exponent of
// 2^e a code at bits 10 - e onwards makes 2^e + code. At least one bit is left below the code, so
// that subtracting 2^e + Q/2 is exact too.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace kvarn::cuda {

template <int kBits>
struct CodeFields {
  static constexpr int kPlaneBits = kBits == 3 ? 2 : kBits;
  static constexpr int kPairs = 16 / kPlaneBits;  // of a unit
  static constexpr float kHalf = static_cast<float>((1 << kBits) - 1) * 0.5F;

  // Bit in its half word of field r of a pair.
  static constexpr int From(int pair, int r) {
    return kPlaneBits * (2 * (pair % kPairs % (kPairs / 2)) + r);
  }
  // Where it is moved to.
  static constexpr int To(int pair, int r) {
    const int from = From(pair, r);
    const int highest = 10 - kBits;
    const int least = kPlaneBits < highest ? kPlaneBits : highest;
    if (from == 0) return least;
    if (from <= highest) return from;
    return from > 8 ? from - 8 : (highest < 4 ? highest : 4);
  }
  static constexpr float Base(int pair, int r) {
    return static_cast<float>(1 << (10 - To(pair, r)));
  }
};

constexpr uint32_t InBothHalves(unsigned bits) { return bits | (bits << 16); }
constexpr uint32_t Moved(uint32_t word, int from, int to) {
  return from >= to ? word >> (from - to) : word << (to - from);
}

// (bits & mask) | add, as one instruction.
__device__ __forceinline__ uint32_t Select(uint32_t bits, uint32_t mask, uint32_t add) {
  uint32_t selected = 0;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(selected) : "r"(bits), "r"(mask), "r"(add));
  return selected;
}

// Base + code of field r, depth kh of pair `pair` (a constant after unrolling) of an item, for
// depth b = 0 and 1. `low`: the words of the unit in the plane of 8, 4 or 2 bits; `high`: of the
// 1-bit plane (3 bits only).
template <int kBits>
__device__ __forceinline__ __half2 CodesAsHalf(const uint32_t (&low)[4], const uint32_t (&high)[4],
                                               int pair, int kh, int r) {
  using Fields = CodeFields<kBits>;
  const int word = 2 * (pair % Fields::kPairs / (Fields::kPairs / 2)) + kh;
  const int from = Fields::From(pair, r);
  const int to = Fields::To(pair, r);
  uint32_t bits =
      Select(Moved(low[word], from, to),
             InBothHalves(((1U << Fields::kPlaneBits) - 1U) << static_cast<unsigned>(to)),
             InBothHalves(static_cast<unsigned>(15 + 10 - to) << 10U));
  if constexpr (kBits == 3) {
    const int field = from / 2;
    const int high_from = 8 * (pair / 8) + 2 * (field % 4) + field / 4;
    bits = Select(Moved(high[word], high_from, to + 2),
                  InBothHalves(4U << static_cast<unsigned>(to)), bits);
  }
  return *reinterpret_cast<const __half2*>(&bits);
}

// The words of an item, kItemPairs (8 or 16) pairs that are decoded together: whole units of the
// low plane, half a unit or one of the high plane.
template <int kBits, int kItemPairs, int kPairsOfRecord>
struct CodeItem {
  using Fields = CodeFields<kBits>;
  static constexpr int kItemUnits = kItemPairs / Fields::kPairs;
  static constexpr int kUnits = (kPairsOfRecord + Fields::kPairs - 1) / Fields::kPairs;
  uint32_t low[kItemUnits][4];
  uint32_t high[4];

  // Units that do not exist are not read; their pairs must not be used.
  __device__ __forceinline__ void Load(const unsigned char* codes, int item, int lane) {
    const auto* units = reinterpret_cast<const uint4*>(codes) + lane;
#pragma unroll
    for (int u = 0; u < kItemUnits; ++u) {
      const int unit = item * kItemUnits + u;
      const uint4 words = unit < kUnits ? units[unit * 32] : make_uint4(0, 0, 0, 0);
      low[u][0] = words.x, low[u][1] = words.y, low[u][2] = words.z, low[u][3] = words.w;
    }
    high[0] = high[1] = high[2] = high[3] = 0;
    if constexpr (kBits == 3) {
      const uint4 words = units[(kUnits + item * kItemPairs / 16) * 32];
      const int shift = kItemPairs == 16 ? 0 : 8 * (item % 2);
      high[0] = words.x >> shift, high[1] = words.y >> shift;
      high[2] = words.z >> shift, high[3] = words.w >> shift;
    }
  }
  __device__ __forceinline__ __half2 At(int pair, int kh, int r) const {
    return CodesAsHalf<kBits>(low[pair / Fields::kPairs], high, pair, kh, r);
  }
};

}  // namespace kvarn::cuda
