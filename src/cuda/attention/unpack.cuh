// SPDX-License-Identifier: Apache-2.0
//
// Codes of a record as operand A of m16n8k16 (docs/format.md section 3, order cuda). AND leaves two
// codes at bits 0 to 9 of a half whose exponent is zero: the subnormal code * 2^-24 * factor,
// exact.
#pragma once

#include <cstdint>

namespace kvarn::cuda {

inline constexpr float kCodeUnit = 0x1p-24F;

// Bit position, and so factor, at which field r of a pair is left. With kUniform it does not depend
// on the pair, for an odd number of row tiles.
template <int kBits, bool kUniform>
constexpr int CodeShift(int pair, int r) {
  if (kBits == 8) return 0;
  if (kBits == 4) return 4 * r;
  return kUniform ? 2 * r : 4 * (pair & 1) + 2 * r;
}
template <int kBits, bool kUniform>
constexpr float CodeFactor(int pair, int r) {
  return static_cast<float>(1 << CodeShift<kBits, kUniform>(pair, r));
}

// What a product with codes of row tile `tile` has to be multiplied with.
template <int kBits, bool kUniform>
constexpr float CodeScale(int tile, int r) {
  return 1.0F / (kCodeUnit * CodeFactor<kBits, kUniform>(tile, r));
}
// Row tiles t and t + FactorPeriod have the same factors.
template <int kBits, bool kUniform>
constexpr int FactorPeriod() {
  return kUniform || kBits == 4 || kBits == 8 ? 1 : 2;
}

constexpr uint32_t BothHalves(unsigned mask) { return mask | (mask << 16); }

// Two codes (depth b = 0, 1) of row field r, depth kh of pair `pair`. `low` is the unit of the
// plane of 8, 4 or 2 bits that holds the pair, `high` that of the 1-bit plane (3 bits only). `pair`
// is a constant after unrolling.
template <int kBits, bool kUniform>
__device__ __forceinline__ uint32_t CodePair(const uint32_t (&low)[4], const uint32_t (&high)[4],
                                             int pair, int kh, int r) {
  constexpr int kPlaneBits = kBits == 3 ? 2 : kBits;
  constexpr int kPairs = 16 / kPlaneBits;
  const int in_unit = pair % kPairs;
  const int word = 2 * (in_unit / (kPairs / 2)) + kh;
  const int bit = kPlaneBits * (2 * (in_unit % (kPairs / 2)) + r);
  const int to = CodeShift<kBits, kUniform>(pair, r);
  uint32_t codes = ((low[word] >> (bit - to)) &
                    BothHalves(((1U << kPlaneBits) - 1U) << static_cast<unsigned>(to)));
  if constexpr (kBits == 3) {
    const int in_high = pair % 16;
    const int field = bit / 2;
    const int from = 8 * (in_high / 8) + 2 * (field % 4) + field / 4;
    const int target = to + 2;
    const uint32_t moved =
        from >= target ? high[word] >> (from - target) : high[word] << (target - from);
    codes |= moved & BothHalves(4U << static_cast<unsigned>(to));
  }
  return codes;
}

// Calls body(pair, a) with the operand of each of kPairs pairs, in order.
template <int kBits, int kPairs, bool kUniform, typename Body>
__device__ __forceinline__ void ForEachPair(const unsigned char* codes, int lane,
                                            const Body& body) {
  constexpr int kPlaneBits = kBits == 3 ? 2 : kBits;
  constexpr int kPerUnit = 16 / kPlaneBits;
  constexpr int kUnits = (kPairs + kPerUnit - 1) / kPerUnit;
  const auto* low_plane = reinterpret_cast<const uint4*>(codes) + lane;
  uint32_t high[4] = {};
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const uint4 loaded = low_plane[u * 32];
    const uint32_t low[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
    if constexpr (kBits == 3) {
      if (u % 2 == 0) {
        const uint4 bits = low_plane[(kUnits + u / 2) * 32];
        high[0] = bits.x, high[1] = bits.y, high[2] = bits.z, high[3] = bits.w;
      }
    }
#pragma unroll
    for (int i = 0; i < kPerUnit; ++i) {
      const int pair = u * kPerUnit + i;
      if (pair >= kPairs) continue;
      const uint32_t a[4] = {CodePair<kBits, kUniform>(low, high, pair, 0, 0),
                             CodePair<kBits, kUniform>(low, high, pair, 0, 1),
                             CodePair<kBits, kUniform>(low, high, pair, 1, 0),
                             CodePair<kBits, kUniform>(low, high, pair, 1, 1)};
      body(pair, a);
    }
  }
}

}  // namespace kvarn::cuda
