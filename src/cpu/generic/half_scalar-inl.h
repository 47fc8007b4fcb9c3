// SPDX-License-Identifier: Apache-2.0
//
// fp16 conversion of many values in integer code. See vec-inl.h on inclusion.

static void ToHalf(const float* in, uint16_t* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = FloatToHalf(in[i]);
}

static void ToFloat(const uint16_t* in, float* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = HalfToFloat(in[i]);
}
