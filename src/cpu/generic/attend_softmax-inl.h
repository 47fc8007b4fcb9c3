// SPDX-License-Identifier: Apache-2.0
//
// The running softmax of a block of query rows. See vec-inl.h on inclusion.

// exp(x) for x <= 0; below -87 it is 0. Degree-6 polynomial after reduction by ln 2, relative error
// below 3e-7.
KVARN_INLINE Vf Exp(Vf x) {
  const Vf clamped = Max(x, Splat(-87.0F));
  const Vf n = Round(clamped * 1.44269504088896341F);
  const Vf r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  Vf p = Splat(1.3981999507e-3F);
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * r * r + r) + 1.0F;
  const Vi bits = (__builtin_convertvector(n, Vi) + 127) << 23;
  const Vf scaled = p * reinterpret_cast<Vf>(bits);
  return x < -87.0F ? Splat(0.0F) : scaled;
}
KVARN_INLINE float ExpF(float x) { return Exp(Splat(x))[0]; }

// Soft-cap, mask and the running softmax; `score` becomes probabilities relative to the new
// maximum. A row that sees nothing gets zeros.
static void UpdateSoftmax(AttendState* s, int group) {
  const float softcap = s->shape->softcap;
  const AttentionPartial& partial = s->task->partial;
  for (int r = 0; r < s->rows; ++r) {
    float* p = s->score + static_cast<int64_t>(r) * kMaxGroup;
    if (!s->visible[r]) {
      __builtin_memset(p, 0, sizeof(float) * static_cast<size_t>(group));
      continue;
    }
    if (softcap != 0.0F) {
      for (int g = 0; g < group; ++g) p[g] = softcap * __builtin_tanhf(p[g] / softcap);
    }
    const float* mask = s->mask + static_cast<int64_t>(s->mask_row[r]) * kMaxGroup;
    const float slope = s->slope[r];
    Vf top = Splat(kMinusInfinity);
    for (int g = 0; g < group; g += kWidth) {
      const Vf x = Load(p + g) + slope * Load(mask + g);
      Store(p + g, x);
      top = Max(top, x);
    }
    const float largest = MaxLanes(top);
    if (!(largest > kMinusInfinity)) {  // every column -inf (or NaN): nothing to add
      __builtin_memset(p, 0, sizeof(float) * static_cast<size_t>(group));
      continue;
    }
    const float before = partial.max[r];
    if (largest > before) {
      const float shrink = before > kMinusInfinity ? ExpF(before - largest) : 0.0F;
      partial.max[r] = largest;
      partial.sum[r] = partial.sum[r] * shrink;
      float* rotated = partial.rotated + static_cast<int64_t>(r) * s->value_stride;
      float* plain = partial.plain + static_cast<int64_t>(r) * s->value_stride;
      for (int d = 0; d < s->value_stride; d += kWidth) {
        Store(rotated + d, Load(rotated + d) * shrink);
        Store(plain + d, Load(plain + d) * shrink);
      }
    }
    const float reference = partial.max[r];
    Vf sum = Splat(0.0F);
    for (int g = 0; g < group; g += kWidth) {
      const Vf e = Exp(Load(p + g) - reference);
      Store(p + g, e);
      sum = sum + e;
    }
    partial.sum[r] = partial.sum[r] + SumLanes(sum);
  }
}
