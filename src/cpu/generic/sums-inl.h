// SPDX-License-Identifier: Apache-2.0
//
// Sums in the order that docs/format.md section 1 fixes. Partial sums of one index class are kept
// in a register for as long as it has terms; which class goes first is free. See vec-inl.h.

// Accumulators that leave enough of the level's registers (32, or 16) for the terms.
constexpr int kAccumulators = kWidth == 16 ? 16 : 8;

typedef float V4 __attribute__((vector_size(16), aligned(4)));
typedef int32_t I4 __attribute__((vector_size(16), aligned(4)));
KVARN_INLINE V4 Load4(const float* p) { return *reinterpret_cast<const V4*>(p); }
KVARN_INLINE void Store4(float* p, V4 v) { *reinterpret_cast<V4*>(p) = v; }
KVARN_INLINE V4 Splat4(float x) { return V4{} + x; }

// Sums over channels: 32 partial sums, i mod 32, in kLaneParts vectors.
constexpr int kLaneParts = 32 / kWidth;

// The first and the second four lanes.
template <typename V>
KVARN_INLINE V4 FirstFour(V v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3);
}
template <typename V>
KVARN_INLINE V4 SecondFour(V v) {
  return __builtin_shufflevector(v, v, 4, 5, 6, 7);
}

template <int kLanes>
KVARN_INLINE auto FirstEight(Vf v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
}
template <int kLanes>
KVARN_INLINE auto SecondEight(Vf v) {
  constexpr int kAt = kLanes - 8;
  return __builtin_shufflevector(v, v, kAt, kAt + 1, kAt + 2, kAt + 3, kAt + 4, kAt + 5, kAt + 6,
                                 kAt + 7);
}

// Joins 32 lanes down to four by `join`, each with the one half the count further on.
template <typename Join, int kLanes = kWidth>
KVARN_INLINE V4 FoldLanes(const Vf* lanes, const Join& join) {
  Vf part[kLaneParts];
#pragma GCC unroll 8
  for (int i = 0; i < kLaneParts; ++i) part[i] = lanes[i];
#pragma GCC unroll 4
  for (int half = kLaneParts / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
    for (int i = 0; i < half; ++i) part[i] = join(part[i], part[i + half]);
  }
  if constexpr (kLanes == 16) {
    const auto eight = join(FirstEight<kLanes>(part[0]), SecondEight<kLanes>(part[0]));
    return join(FirstFour(eight), SecondFour(eight));
  } else if constexpr (kLanes == 8) {
    return join(FirstFour(part[0]), SecondFour<Vf>(part[0]));
  } else {
    return FirstFour(part[0]);
  }
}

// Joins the lanes of four vectors: lane r of the result is that of v[r].
template <typename Join>
KVARN_INLINE V4 JoinFour(const V4* v, const Join& join) {
  const V4 first = join(__builtin_shufflevector(v[0], v[1], 0, 1, 4, 5),
                        __builtin_shufflevector(v[0], v[1], 2, 3, 6, 7));
  const V4 second = join(__builtin_shufflevector(v[2], v[3], 0, 1, 4, 5),
                         __builtin_shufflevector(v[2], v[3], 2, 3, 6, 7));
  return join(__builtin_shufflevector(first, second, 0, 2, 4, 6),
              __builtin_shufflevector(first, second, 1, 3, 5, 7));
}

struct Plus {
  template <typename V>
  KVARN_INLINE_MEMBER V operator()(V a, V b) const {
    return a + b;
  }
};
struct Lesser {
  template <typename V>
  KVARN_INLINE_MEMBER V operator()(V a, V b) const {
    return a < b ? a : b;
  }
};
struct Greater {
  template <typename V>
  KVARN_INLINE_MEMBER V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};

// kSums sums over the channels of four rows; lane r of total[s] is that of row r. term(r, d, value)
// gives the kSums terms of channels d .. d + kWidth - 1. Padding up to 32 channels is summed too.
template <int kSums, typename Term>
KVARN_INLINE void SumFourRows(int head_dim, const Term& term, V4* total) {
  constexpr int kWanted = kAccumulators / kSums;
  constexpr int kStep = kWanted >= kLaneParts ? kLaneParts
                        : kWanted >= 4        ? 4
                        : kWanted >= 2        ? 2
                                              : 1;
  V4 folded[kSums][4];
  for (int r = 0; r < 4; ++r) {
    Vf sum[kSums][kLaneParts];
#pragma GCC unroll 8
    for (int first = 0; first < kLaneParts; first += kStep) {
      Vf part[kStep][kSums] = {};
      for (int d = first * kWidth; d < head_dim; d += 32) {
#pragma GCC unroll 8
        for (int i = 0; i < kStep; ++i) {
          Vf value[kSums];
          term(r, d + i * kWidth, value);
#pragma GCC unroll 8
          for (int s = 0; s < kSums; ++s) part[i][s] = part[i][s] + value[s];
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kStep; ++i) {
#pragma GCC unroll 8
        for (int s = 0; s < kSums; ++s) sum[s][first + i] = part[i][s];
      }
    }
#pragma GCC unroll 8
    for (int s = 0; s < kSums; ++s) folded[s][r] = FoldLanes(sum[s], Plus{});
  }
#pragma GCC unroll 8
  for (int s = 0; s < kSums; ++s) total[s] = JoinFour(folded[s], Plus{});
}

// kSums sums over tokens, one channel a lane: 8 partial sums, g mod 8. term(g, value) gives the
// kSums terms of token g.
template <int kSums, typename Term>
KVARN_INLINE void SumTokens(int n, const Term& term, Vf* total) {
  constexpr int kWanted = kAccumulators / kSums;
  constexpr int kChains = kSums > 4      ? 1
                          : kWanted >= 8 ? 8
                          : kWanted >= 4 ? 4
                          : kWanted >= 2 ? 2
                                         : 1;
  Vf part[kSums][8];
  for (int first = 0; first < 8; first += kChains) {
    Vf sum[kChains][kSums] = {};
    int g = first;
    for (; g + kChains <= n; g += 8) {
#pragma GCC unroll 8
      for (int p = 0; p < kChains; ++p) {
        Vf value[kSums];
        term(g + p, value);
#pragma GCC unroll 8
        for (int s = 0; s < kSums; ++s) sum[p][s] = sum[p][s] + value[s];
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < kChains; ++p) {
      if (g + p < n) {
        Vf value[kSums];
        term(g + p, value);
#pragma GCC unroll 8
        for (int s = 0; s < kSums; ++s) sum[p][s] = sum[p][s] + value[s];
      }
#pragma GCC unroll 8
      for (int s = 0; s < kSums; ++s) part[s][first + p] = sum[p][s];
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < kSums; ++s) {
    const Vf* p = part[s];
    total[s] = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
  }
}

// The same for one number a token. values [kMaxGroup] is zero from n on: a partial sum is never -0,
// so adding +0 leaves it as it is.
KVARN_INLINE float SumTokensF(const float* values, int n) {
  V4 low = {};
  V4 high = {};
  for (int g = 0; g < n; g += 8) {
    low = low + Load4(values + g);
    high = high + Load4(values + g + 4);
  }
  const V4 p = low + high;
  return (p[0] + p[2]) + (p[1] + p[3]);
}
