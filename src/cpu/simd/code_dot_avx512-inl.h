// SPDX-License-Identifier: Apache-2.0
//
// The product of code_dot_args-inl.h with AVX-512 VNNI: one unit of 64 bytes is 16 lanes of four
// code bytes; each field of a byte meets a broadcast of four query bytes.

KVARN_INLINE __m512i BroadcastQuad(const int8_t* quad) {
  int32_t bits;
  __builtin_memcpy(&bits, quad, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

template <int kBits, int kRows>
KVARN_INLINE void CodeDotStrip(const CodeDotArgs& args, const uint8_t* codes, int units,
                               int first_row, int lane) {
  constexpr int kPerByte = 8 / kBits;
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1U << kBits) - 1U));
  const int8_t* weights = args.weights + static_cast<int64_t>(2 * first_row) * args.weight_stride;
  __m512i high[kRows];
  __m512i low[kRows];
  for (int r = 0; r < kRows; ++r) {
    high[r] = _mm512_setzero_si512();
    low[r] = _mm512_setzero_si512();
  }
  for (int u = 0; u < units; ++u) {
    const __m512i packed = _mm512_loadu_si512(codes + static_cast<int64_t>(u) * kUnitBytes);
    for (int f = 0; f < kPerByte; ++f) {
      __m512i code = packed;
      if constexpr (kBits < 8) {
        code = _mm512_and_si512(_mm512_srli_epi16(packed, static_cast<unsigned>(f * kBits)), mask);
      }
      const int8_t* quad = weights + 4 * (u * kPerByte + f);
      for (int r = 0; r < kRows; ++r) {
        high[r] =
            _mm512_dpbusd_epi32(high[r], code, BroadcastQuad(quad + 2 * r * args.weight_stride));
        low[r] = _mm512_dpbusd_epi32(low[r], code,
                                     BroadcastQuad(quad + (2 * r + 1) * args.weight_stride));
      }
    }
  }
  const __m512 multiplier = _mm512_set1_ps(args.multiplier);
  for (int r = 0; r < kRows; ++r) {
    const __m512 sum =
        _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(high[r]), _mm512_set1_ps(128.0F)),
                      _mm512_cvtepi32_ps(low[r]));
    float* out = args.out + static_cast<int64_t>(first_row + r) * args.out_stride + lane;
    const __m512 scaled = _mm512_mul_ps(sum, multiplier);
    _mm512_storeu_ps(out, args.add ? _mm512_add_ps(_mm512_loadu_ps(out), scaled) : scaled);
  }
}

template <int kBits>
static void CodeDot(const CodeDotArgs& args) {
  const int units = (args.contraction + 32 / kBits - 1) / (32 / kBits);
  for (int strip = 0; strip < args.strips; ++strip) {
    const uint8_t* codes = args.codes + static_cast<int64_t>(strip) * units * kUnitBytes;
    const int lane = strip * kLanesPerStrip;
    int r = 0;
    for (; r + 8 <= args.rows; r += 8) CodeDotStrip<kBits, 8>(args, codes, units, r, lane);
    switch (args.rows - r) {
      case 7:
        CodeDotStrip<kBits, 7>(args, codes, units, r, lane);
        break;
      case 6:
        CodeDotStrip<kBits, 6>(args, codes, units, r, lane);
        break;
      case 5:
        CodeDotStrip<kBits, 5>(args, codes, units, r, lane);
        break;
      case 4:
        CodeDotStrip<kBits, 4>(args, codes, units, r, lane);
        break;
      case 3:
        CodeDotStrip<kBits, 3>(args, codes, units, r, lane);
        break;
      case 2:
        CodeDotStrip<kBits, 2>(args, codes, units, r, lane);
        break;
      case 1:
        CodeDotStrip<kBits, 1>(args, codes, units, r, lane);
        break;
      default:
        break;
    }
  }
}
