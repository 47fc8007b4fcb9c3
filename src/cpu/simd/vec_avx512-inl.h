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
