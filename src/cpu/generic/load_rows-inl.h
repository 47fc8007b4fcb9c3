// SPDX-License-Identifier: Apache-2.0
//
// Rows on their way into the encoder: cleaned and balanced. See vec-inl.h on inclusion.

static bool ScaleRow(const float* in, const float* scale, float* out, int count) {
  Vi outside = {};
  int d = 0;
  for (; d + kWidth <= count; d += kWidth) {
    const Vf x = Load(in + d);
    outside = outside | ~(Abs(x) <= kHalfMax);  // a NaN is not less or equal
    Store(out + d, scale != nullptr ? x * Load(scale + d) : x);
  }
  bool any = AnyLane(outside);
  for (; d < count; ++d) {
    any = any || !(__builtin_fabsf(in[d]) <= kHalfMax);
    out[d] = scale != nullptr ? in[d] * scale[d] : in[d];
  }
  return !any;
}

static void ScaleHalfRow(const uint16_t* in, const float* scale, float* out, int count) {
  ToFloat(in, out, count);
  if (scale == nullptr) return;
  for (int d = 0; d < count; ++d) out[d] = out[d] * scale[d];
}
