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

KVARN_INLINE Vf Fill(float x) { return _mm256_set1_ps(x); }
KVARN_INLINE Vf Fma(Vf a, Vf b, Vf c) { return _mm256_fmadd_ps(a, b, c); }
KVARN_INLINE Vi RoundToInt(Vf x) { return reinterpret_cast<Vi>(_mm256_cvtps_epi32(x)); }
KVARN_INLINE float SumLanes(Vf v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
KVARN_INLINE float MaxLanes(Vf v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

// Packing works inside halves of 16 bytes: lanes 4k to 4k + 3 of each of the four inputs come to
// half k.
KVARN_INLINE void StoreParts(const Vi* w, int8_t* high, int8_t* low) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  __m256i upper[2];
  __m256i lower[2];
  for (int i = 0; i < 2; ++i) {
    const __m256i both = _mm256_packs_epi32(reinterpret_cast<__m256i>(w[2 * i]),
                                            reinterpret_cast<__m256i>(w[2 * i + 1]));
    upper[i] = _mm256_srai_epi16(_mm256_add_epi16(both, _mm256_set1_epi16(64)), 7);
    lower[i] = _mm256_sub_epi16(both, _mm256_slli_epi16(upper[i], 7));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high),
                      _mm256_permutevar8x32_epi32(_mm256_packs_epi16(upper[0], upper[1]), order));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low),
                      _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lower[0], lower[1]), order));
}
