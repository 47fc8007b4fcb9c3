// SPDX-License-Identifier: Apache-2.0
//
// Vector operations of level "avx512". See generic/vec-inl.h.

KVARN_INLINE Vf Min(Vf a, Vf b) { return _mm512_min_ps(a, b); }
KVARN_INLINE Vf Max(Vf a, Vf b) { return _mm512_max_ps(a, b); }
KVARN_INLINE Vf Sqrt(Vf x) { return _mm512_sqrt_ps(x); }

KVARN_INLINE Vf Nearest(Vf x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

KVARN_INLINE void StoreBytes(uint8_t* p, Vi v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v)));
}
KVARN_INLINE Vf LoadBytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}
