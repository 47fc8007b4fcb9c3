// SPDX-License-Identifier: Apache-2.0
//
// Vector operations of level "avx2". See generic/vec-inl.h.

KVARN_INLINE Vf Min(Vf a, Vf b) { return _mm256_min_ps(a, b); }
KVARN_INLINE Vf Max(Vf a, Vf b) { return _mm256_max_ps(a, b); }
KVARN_INLINE Vf Sqrt(Vf x) { return _mm256_sqrt_ps(x); }

// Positive floats order as integers do, and negative ones, among them the processor's NaN of
// 0 * inf, are negative integers. Those have execution units that multiplications leave idle.
KVARN_INLINE Vf RoundToCode(Vf x, float top) {
  const __m256i from_zero = _mm256_max_epi32(_mm256_castps_si256(x), _mm256_setzero_si256());
  const __m256i clamped = _mm256_min_epi32(from_zero, _mm256_castps_si256(_mm256_set1_ps(top)));
  return _mm256_round_ps(_mm256_castsi256_ps(clamped),
                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

KVARN_INLINE Vf MaxPositive(Vf a, Vf b) {
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

KVARN_INLINE Vf MaxWhereEqual(Vf now, Vf a, Vf b, float positive) {
  const __m256 kept = _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ), _mm256_set1_ps(positive));
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(now), _mm256_castps_si256(kept)));
}

KVARN_INLINE Vf AddSigned(Vf a, Vf b, Vf sign) { return _mm256_fmadd_ps(b, sign, a); }

KVARN_INLINE bool AnyLane(Vi mask) {
  return _mm256_movemask_epi8(reinterpret_cast<__m256i>(mask)) != 0;
}

KVARN_INLINE void StoreBytes(uint8_t* p, Vi v) {
  const __m256i low = _mm256_and_si256(reinterpret_cast<__m256i>(v), _mm256_set1_epi32(0xFF));
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
}
KVARN_INLINE Vf LoadBytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}
