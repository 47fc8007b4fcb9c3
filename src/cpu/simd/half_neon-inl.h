// SPDX-License-Identifier: Apache-2.0
//
// fp16 conversion of many values with NEON. See vec-inl.h on inclusion.

static void ToHalf(const float* in, uint16_t* out, int count) {
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in + i))));
  }
  for (; i < count; ++i) out[i] = FloatToHalf(in[i]);
}

static void ToFloat(const uint16_t* in, float* out, int count) {
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in + i))));
  }
  for (; i < count; ++i) out[i] = HalfToFloat(in[i]);
}
