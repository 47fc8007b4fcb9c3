// SPDX-License-Identifier: Apache-2.0
//
// Vector operations of level "avx2". See generic/vec-inl.h.

KVARN_INLINE Vf Min(Vf a, Vf b) { return _mm256_min_ps(a, b); }
KVARN_INLINE Vf Max(Vf a, Vf b) { return _mm256_max_ps(a, b); }
KVARN_INLINE Vf Sqrt(Vf x) { return _mm256_sqrt_ps(x); }

KVARN_INLINE Vf Nearest(Vf x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
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
