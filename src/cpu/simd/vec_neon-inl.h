// SPDX-License-Identifier: Apache-2.0
//
// Vector operations of level "neon". See generic/vec-inl.h.

KVARN_INLINE Vf Min(Vf a, Vf b) { return a < b ? a : b; }
KVARN_INLINE Vf Max(Vf a, Vf b) { return a > b ? a : b; }
KVARN_INLINE Vf Sqrt(Vf x) { return vsqrtq_f32(x); }

// Positive floats order as integers do; negative ones are negative integers, and so becomes the NaN
// of 0 * inf, which is a positive one here.
KVARN_INLINE Vf RoundToCode(Vf x, float top) {
  const uint32x4_t number = vceqq_f32(x, x);
  const int32x4_t whole = vreinterpretq_s32_u32(vandq_u32(vreinterpretq_u32_f32(x), number));
  const int32x4_t from_zero = vmaxq_s32(whole, vdupq_n_s32(0));
  const int32x4_t clamped = vminq_s32(from_zero, vreinterpretq_s32_f32(vdupq_n_f32(top)));
  return vrndnq_f32(vreinterpretq_f32_s32(clamped));
}

KVARN_INLINE Vf MaxPositive(Vf a, Vf b) {
  return vreinterpretq_f32_s32(vmaxq_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b)));
}

KVARN_INLINE Vf MaxWhereEqual(Vf now, Vf a, Vf b, float positive) {
  const uint32x4_t kept = vandq_u32(vceqq_f32(a, b), vreinterpretq_u32_f32(vdupq_n_f32(positive)));
  return MaxPositive(now, vreinterpretq_f32_u32(kept));
}

KVARN_INLINE Vf AddSigned(Vf a, Vf b, Vf sign) { return vfmaq_f32(a, b, sign); }

KVARN_INLINE bool AnyLane(Vi mask) { return vmaxvq_u32(vreinterpretq_u32_s32(mask)) != 0; }

KVARN_INLINE void StoreBytes(uint8_t* p, Vi v) {
  const uint16x4_t words = vmovn_u32(vreinterpretq_u32_s32(v));
  const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
  const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
  __builtin_memcpy(p, &four, sizeof(four));
}
KVARN_INLINE Vf LoadBytes(const uint8_t* p) {
  uint32_t four = 0;
  __builtin_memcpy(&four, p, sizeof(four));
  const uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(words)));
}

KVARN_INLINE Vf Fill(float x) { return vdupq_n_f32(x); }
KVARN_INLINE Vf Fma(Vf a, Vf b, Vf c) { return vfmaq_f32(c, a, b); }
KVARN_INLINE Vi RoundToInt(Vf x) { return vcvtnq_s32_f32(x); }
KVARN_INLINE float SumLanes(Vf v) { return vaddvq_f32(v); }
KVARN_INLINE float MaxLanes(Vf v) { return vmaxvq_f32(v); }

KVARN_INLINE void StoreParts(const Vi* w, int8_t* high, int8_t* low) {
  int8x8_t upper[2];
  int8x8_t lower[2];
  for (int i = 0; i < 2; ++i) {
    const int16x8_t both = vcombine_s16(vmovn_s32(w[2 * i]), vmovn_s32(w[2 * i + 1]));
    const int16x8_t top = vshrq_n_s16(vaddq_s16(both, vdupq_n_s16(64)), 7);
    upper[i] = vmovn_s16(top);
    lower[i] = vmovn_s16(vsubq_s16(both, vshlq_n_s16(top, 7)));
  }
  vst1q_s8(high, vcombine_s8(upper[0], upper[1]));
  vst1q_s8(low, vcombine_s8(lower[0], lower[1]));
}
