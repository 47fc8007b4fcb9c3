// SPDX-License-Identifier: Apache-2.0
//
// The product of code_dot_args-inl.h with AVX2: a unit of 64 bytes is two halves of 8 lanes.
// vpmaddubsw adds two products of an unsigned code and a signed query byte in 16 bits; codes of up
// to 4 bits stay below 2 * 15 * 127 = 3,810. Codes of 8 bits would saturate, so they are taken as
// two nibbles and the upper one is weighted by 16 afterwards.

KVARN_INLINE __m256i BroadcastQuad(const int8_t* quad) {
  int32_t bits;
  __builtin_memcpy(&bits, quad, sizeof(bits));
  return _mm256_set1_epi32(bits);
}

// sum of four products a lane, codes below 16
KVARN_INLINE __m256i DotQuad(__m256i codes, __m256i weights) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, weights), _mm256_set1_epi16(1));
}

template <int kBits>
KVARN_INLINE __m256i DotField(__m256i packed, int field, __m256i weights) {
  if constexpr (kBits == 8) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i lower = DotQuad(_mm256_and_si256(packed, nibble), weights);
    const __m256i upper = DotQuad(_mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble), weights);
    return _mm256_add_epi32(lower, _mm256_slli_epi32(upper, 4));
  } else {
    const __m256i mask = _mm256_set1_epi8(static_cast<char>((1U << kBits) - 1U));
    return DotQuad(_mm256_and_si256(_mm256_srli_epi16(packed, field * kBits), mask), weights);
  }
}

template <int kBits, int kRows>
KVARN_INLINE void CodeDotHalf(const CodeDotArgs& args, const uint8_t* codes, int units,
                              int first_row, int lane) {
  constexpr int kPerByte = 8 / kBits;
  const int8_t* weights = args.weights + static_cast<int64_t>(2 * first_row) * args.weight_stride;
  __m256i high[kRows];
  __m256i low[kRows];
  for (int r = 0; r < kRows; ++r) {
    high[r] = _mm256_setzero_si256();
    low[r] = _mm256_setzero_si256();
  }
  for (int u = 0; u < units; ++u) {
    const __m256i packed = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(codes + static_cast<int64_t>(u) * kUnitBytes));
    for (int f = 0; f < kPerByte; ++f) {
      const int8_t* quad = weights + 4 * (u * kPerByte + f);
      for (int r = 0; r < kRows; ++r) {
        const int8_t* row = quad + 2 * r * args.weight_stride;
        high[r] = _mm256_add_epi32(high[r], DotField<kBits>(packed, f, BroadcastQuad(row)));
        low[r] = _mm256_add_epi32(
            low[r], DotField<kBits>(packed, f, BroadcastQuad(row + args.weight_stride)));
      }
    }
  }
  const __m256 multiplier = _mm256_set1_ps(args.multiplier);
  for (int r = 0; r < kRows; ++r) {
    const __m256 sum =
        _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(high[r]), _mm256_set1_ps(128.0F)),
                      _mm256_cvtepi32_ps(low[r]));
    float* out = args.out + static_cast<int64_t>(first_row + r) * args.out_stride + lane;
    const __m256 scaled = _mm256_mul_ps(sum, multiplier);
    _mm256_storeu_ps(out, args.add ? _mm256_add_ps(_mm256_loadu_ps(out), scaled) : scaled);
  }
}

template <int kBits>
static void CodeDot(const CodeDotArgs& args) {
  const int units = (args.contraction + 32 / kBits - 1) / (32 / kBits);
  for (int half = 0; half < 2 * args.strips; ++half) {
    const uint8_t* codes =
        args.codes + static_cast<int64_t>(half / 2) * units * kUnitBytes + (half % 2) * 32;
    const int lane = half * 8;
    int r = 0;
    for (; r + 4 <= args.rows; r += 4) CodeDotHalf<kBits, 4>(args, codes, units, r, lane);
    switch (args.rows - r) {
      case 3:
        CodeDotHalf<kBits, 3>(args, codes, units, r, lane);
        break;
      case 2:
        CodeDotHalf<kBits, 2>(args, codes, units, r, lane);
        break;
      case 1:
        CodeDotHalf<kBits, 1>(args, codes, units, r, lane);
        break;
      default:
        break;
    }
  }
}
