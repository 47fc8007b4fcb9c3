// SPDX-License-Identifier: Apache-2.0
//
// Vector operations of level "avx512". See generic/vec-inl.h.

KVARN_INLINE Vf Min(Vf a, Vf b) { return _mm512_min_ps(a, b); }
KVARN_INLINE Vf Max(Vf a, Vf b) { return _mm512_max_ps(a, b); }
KVARN_INLINE Vf Sqrt(Vf x) { return _mm512_sqrt_ps(x); }

// Positive floats order as integers do, and negative ones, among them the processor's NaN of
// 0 * inf, are negative integers. Those have execution units that multiplications leave idle.
KVARN_INLINE Vf RoundToCode(Vf x, float top) {
  const __m512i from_zero = _mm512_max_epi32(_mm512_castps_si512(x), _mm512_setzero_si512());
  const __m512i clamped = _mm512_min_epi32(from_zero, _mm512_castps_si512(_mm512_set1_ps(top)));
  return _mm512_roundscale_ps(_mm512_castsi512_ps(clamped),
                              _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

KVARN_INLINE Vf MaxPositive(Vf a, Vf b) {
  return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

KVARN_INLINE Vf MaxWhereEqual(Vf now, Vf a, Vf b, float positive) {
  const __m512i was = _mm512_castps_si512(now);
  const __m512i other = _mm512_castps_si512(_mm512_set1_ps(positive));
  return _mm512_castsi512_ps(
      _mm512_mask_max_epi32(was, _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), was, other));
}

KVARN_INLINE Vf AddSigned(Vf a, Vf b, Vf sign) { return _mm512_fmadd_ps(b, sign, a); }

KVARN_INLINE bool AnyLane(Vi mask) {
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0;
}

KVARN_INLINE void StoreBytes(uint8_t* p, Vi v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v)));
}
KVARN_INLINE Vf LoadBytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

KVARN_INLINE Vf Fill(float x) { return _mm512_set1_ps(x); }
KVARN_INLINE Vf Fma(Vf a, Vf b, Vf c) { return _mm512_fmadd_ps(a, b, c); }
KVARN_INLINE Vi RoundToInt(Vf x) { return reinterpret_cast<Vi>(_mm512_cvtps_epi32(x)); }
KVARN_INLINE float SumLanes(Vf v) { return _mm512_reduce_add_ps(v); }
KVARN_INLINE float MaxLanes(Vf v) { return _mm512_reduce_max_ps(v); }

// Packing works inside quarters of 16 bytes: lanes 4k to 4k + 3 of each of the four inputs come to
// quarter k.
KVARN_INLINE void StoreParts(const Vi* w, int8_t* high, int8_t* low) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i upper[2];
  __m512i lower[2];
  for (int i = 0; i < 2; ++i) {
    const __m512i both = _mm512_packs_epi32(reinterpret_cast<__m512i>(w[2 * i]),
                                            reinterpret_cast<__m512i>(w[2 * i + 1]));
    upper[i] = _mm512_srai_epi16(_mm512_add_epi16(both, _mm512_set1_epi16(64)), 7);
    lower[i] = _mm512_sub_epi16(both, _mm512_slli_epi16(upper[i], 7));
  }
  _mm512_storeu_si512(high,
                      _mm512_permutexvar_epi32(order, _mm512_packs_epi16(upper[0], upper[1])));
  _mm512_storeu_si512(low, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(lower[0], lower[1])));
}
