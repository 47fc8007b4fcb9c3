// SPDX-License-Identifier: Apache-2.0
//
// The product of code_dot_args-inl.h with AVX2: a unit of 64 bytes is two halves of 8 lanes.
// vpmaddubsw adds two products of an unsigned code and a signed query byte in 16 bits; codes of up
// to 4 bits stay below 2 * 15 * 127 = 3,810, so several such sums are added in 16 bits before they
// are widened. Codes of 8 bits would saturate: they are taken as two nibbles, and the upper one is
// weighted by 16 afterwards.

KVARN_INLINE __m256i BroadcastQuad(const int8_t* quad) {
  int32_t bits;
  __builtin_memcpy(&bits, quad, sizeof(bits));
  return _mm256_set1_epi32(bits);
}

// Units whose 16-bit sums cannot overflow: quads of a unit (8 / bits) times 2 * 127 * (2^bits - 1),
// nibbles counting as 4 bits.
template <int kBits>
inline constexpr int kUnitsPerSum = kBits == 4 ? 4 : 8;
static_assert(8 * 2 * 127 * 15 <= 32767);     // 8 bits: 8 units of a quad; 4: 4 units of two
static_assert(8 * 4 * 2 * 127 * 3 <= 32767);  // 2 bits
static_assert(8 * 8 * 2 * 127 <= 32767);      // 1 bit

// 16-bit sums of the products of a row's weights and codes; codes of 8 bits have a second sum, of
// their upper nibbles.
template <int kBits>
struct PairSums {
  __m256i lower = _mm256_setzero_si256();
  __m256i upper = _mm256_setzero_si256();

  KVARN_INLINE_MEMBER void Add(__m256i packed, int field, __m256i weights) {
    constexpr int kFieldBits = kBits == 8 ? 4 : kBits;
    const __m256i mask = _mm256_set1_epi8(static_cast<char>((1U << kFieldBits) - 1U));
    const __m256i code = _mm256_and_si256(_mm256_srli_epi16(packed, field * kBits), mask);
    lower = _mm256_add_epi16(lower, _mm256_maddubs_epi16(code, weights));
    if constexpr (kBits == 8) {
      const __m256i rest = _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask);
      upper = _mm256_add_epi16(upper, _mm256_maddubs_epi16(rest, weights));
    }
  }
  KVARN_INLINE_MEMBER __m256i Widened() const {
    const __m256i one = _mm256_set1_epi16(1);
    const __m256i wide = _mm256_madd_epi16(lower, one);
    if constexpr (kBits < 8) return wide;
    return _mm256_add_epi32(wide, _mm256_slli_epi32(_mm256_madd_epi16(upper, one), 4));
  }
};

// Adds the products of units [0, units) to the 32-bit sums: high and low of each row.
template <int kBits, int kRows>
KVARN_INLINE void AddUnits(const uint8_t* codes, const uint8_t* next, const int8_t* weights,
                           int64_t stride, int units, __m256i* sums) {
  constexpr int kPerByte = 8 / kBits;
  PairSums<kBits> part[2 * kRows];
  for (int u = 0; u < units; ++u) {
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
    codes += kUnitBytes;
    next += kUnitBytes;
#pragma GCC unroll 8
    for (int f = 0; f < kPerByte; ++f) {
#pragma GCC unroll 8
      for (int i = 0; i < 2 * kRows; ++i) {
        part[i].Add(packed, f, BroadcastQuad(weights + i * stride + 4 * f));
      }
    }
    weights += 4 * kPerByte;
  }
#pragma GCC unroll 8
  for (int i = 0; i < 2 * kRows; ++i) sums[i] = _mm256_add_epi32(sums[i], part[i].Widened());
}

// 128 high + low.
template <int kBits>
KVARN_INLINE __m256 JoinParts(__m256i high, __m256i low) {
  if constexpr (kBits == 8) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), _mm256_set1_ps(128.0F),
                           _mm256_cvtepi32_ps(low));
  } else {
    return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_slli_epi32(high, 7), low));
  }
}
template <int kBits, int kRows>
static void CodeDotHalf(const CodeDotArgs& args, int units, int first_row, int half) {
  const int64_t begin = static_cast<int64_t>(half / 2) * units * kUnitBytes + (half % 2) * 32;
  const uint8_t* codes = args.codes + begin;
  const uint8_t* next = args.next + begin;
  const int8_t* weights = args.weights + static_cast<int64_t>(2 * first_row) * args.weight_stride;
  __m256i sums[2 * kRows];
#pragma GCC unroll 16
  for (int i = 0; i < 2 * kRows; ++i) sums[i] = _mm256_setzero_si256();
  for (int u = 0; u < units; u += kUnitsPerSum<kBits>) {
    const int left = units - u;
    AddUnits<kBits, kRows>(codes, next, weights, args.weight_stride,
                           left < kUnitsPerSum<kBits> ? left : kUnitsPerSum<kBits>, sums);
    codes += kUnitsPerSum<kBits> * kUnitBytes;
    next += kUnitsPerSum<kBits> * kUnitBytes;
    weights += kUnitsPerSum<kBits> * 32 / kBits;
  }
  const __m256 gain = _mm256_loadu_ps(args.gain + half * 8);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const DotRow& row = args.rows[first_row + r];
    float* out = row.out + half * 8;
    const __m256 sum = _mm256_fmadd_ps(JoinParts<kBits>(sums[2 * r], sums[2 * r + 1]),
                                       _mm256_set1_ps(row.scale), _mm256_set1_ps(row.inside));
    const __m256 base = args.add ? _mm256_loadu_ps(out) : _mm256_set1_ps(row.outside);
    _mm256_storeu_ps(out, _mm256_fmadd_ps(gain, sum, base));
  }
}

template <int kBits, int kRows>
KVARN_INLINE void CodeDotRows(const CodeDotArgs& args, int units, int first_row) {
  for (int half = 0; half < 2 * args.strips; ++half) {
    CodeDotHalf<kBits, kRows>(args, units, first_row, half);
  }
}

template <int kBits>
static void CodeDot(const CodeDotArgs& args) {
  constexpr int kMost = kBits == 8 ? 2 : 4;  // rows whose sums fit the registers
  const int units = (args.contraction + 32 / kBits - 1) / (32 / kBits);
  int r = 0;
  for (; r + kMost <= args.n_rows; r += kMost) CodeDotRows<kBits, kMost>(args, units, r);
  switch (args.n_rows - r) {
    case 3:
      return CodeDotRows<kBits, 3>(args, units, r);
    case 2:
      return CodeDotRows<kBits, 2>(args, units, r);
    case 1:
      return CodeDotRows<kBits, 1>(args, units, r);
    default:
      return;
  }
}
