// SPDX-License-Identifier: Apache-2.0
//
// The product of code_dot_args-inl.h with AVX-512 VNNI: one unit of 64 bytes is 16 lanes of four
// code bytes; each field of a byte meets a broadcast of four query bytes. A sum waits four cycles
// for its last addition, so with few rows several strips are summed side by side.

KVARN_INLINE __m512i BroadcastQuad(const int8_t* quad) {
  int32_t bits;
  __builtin_memcpy(&bits, quad, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

// 128 high + low.
template <int kBits>
KVARN_INLINE __m512 JoinParts(__m512i high, __m512i low) {
  if constexpr (kBits == 8) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(128.0F),
                           _mm512_cvtepi32_ps(low));
  } else {
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 7), low));
  }
}
template <int kBits, int kRows, int kStrips>
static void CodeDotStrips(const CodeDotArgs& args, int units, int first_row, int strip) {
  constexpr int kPerByte = 8 / kBits;
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1U << kBits) - 1U));
  const int64_t strip_bytes = static_cast<int64_t>(units) * kUnitBytes;
  const uint8_t* codes = args.codes + strip * strip_bytes;
  const uint8_t* next = args.next + strip * strip_bytes;
  const int8_t* weights = args.weights + static_cast<int64_t>(2 * first_row) * args.weight_stride;
  const int64_t stride = args.weight_stride;
  // Loops over kStrips and kRows are unrolled so that the sums stay in registers.
  __m512i high[kStrips * kRows];
  __m512i low[kStrips * kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kStrips * kRows; ++i) high[i] = low[i] = _mm512_setzero_si512();
  for (int u = 0; u < units; ++u) {
    __m512i packed[kStrips];
#pragma GCC unroll 4
    for (int k = 0; k < kStrips; ++k) {
      packed[k] = _mm512_loadu_si512(codes + k * strip_bytes);
      _mm_prefetch(reinterpret_cast<const char*>(next + k * strip_bytes), _MM_HINT_T1);
    }
    next += kUnitBytes;
    codes += kUnitBytes;
#pragma GCC unroll 8
    for (int f = 0; f < kPerByte; ++f) {
      __m512i code[kStrips];
#pragma GCC unroll 4
      for (int k = 0; k < kStrips; ++k) {
        code[k] = packed[k];
        if constexpr (kBits < 8) {
          code[k] =
              _mm512_and_si512(_mm512_srli_epi16(code[k], static_cast<unsigned>(f * kBits)), mask);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i upper = BroadcastQuad(weights + 4 * f + 2 * r * stride);
        const __m512i lower = BroadcastQuad(weights + 4 * f + (2 * r + 1) * stride);
#pragma GCC unroll 4
        for (int k = 0; k < kStrips; ++k) {
          const int i = k * kRows + r;
          high[i] = _mm512_dpbusd_epi32(high[i], code[k], upper);
          low[i] = _mm512_dpbusd_epi32(low[i], code[k], lower);
        }
      }
    }
    weights += 4 * kPerByte;
  }
  __m512 gain[kStrips];
#pragma GCC unroll 4
  for (int k = 0; k < kStrips; ++k) {
    gain[k] = _mm512_loadu_ps(args.gain + (strip + k) * kLanesPerStrip);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const DotRow& row = args.rows[first_row + r];
    const __m512 scale = _mm512_set1_ps(row.scale);
    const __m512 inside = _mm512_set1_ps(row.inside);
#pragma GCC unroll 4
    for (int k = 0; k < kStrips; ++k) {
      const int i = k * kRows + r;
      float* out = row.out + (strip + k) * kLanesPerStrip;
      const __m512 sum = _mm512_fmadd_ps(JoinParts<kBits>(high[i], low[i]), scale, inside);
      const __m512 base = args.add ? _mm512_loadu_ps(out) : _mm512_set1_ps(row.outside);
      _mm512_storeu_ps(out, _mm512_fmadd_ps(gain[k], sum, base));
    }
  }
}

template <int kBits, int kRows>
KVARN_INLINE void CodeDotRows(const CodeDotArgs& args, int units, int first_row) {
  constexpr int kStrips = kRows == 1 ? 4 : kRows <= 4 ? 2 : 1;
  int strip = 0;
  for (; strip + kStrips <= args.strips; strip += kStrips) {
    CodeDotStrips<kBits, kRows, kStrips>(args, units, first_row, strip);
  }
  for (; kStrips > 1 && strip < args.strips; ++strip) {
    CodeDotStrips<kBits, kRows, 1>(args, units, first_row, strip);
  }
}

template <int kBits>
static void CodeDot(const CodeDotArgs& args) {
  const int units = (args.contraction + 32 / kBits - 1) / (32 / kBits);
  int r = 0;
  for (; r + 8 <= args.n_rows; r += 8) CodeDotRows<kBits, 8>(args, units, r);
  switch (args.n_rows - r) {
    case 7:
      return CodeDotRows<kBits, 7>(args, units, r);
    case 6:
      return CodeDotRows<kBits, 6>(args, units, r);
    case 5:
      return CodeDotRows<kBits, 5>(args, units, r);
    case 4:
      return CodeDotRows<kBits, 4>(args, units, r);
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
