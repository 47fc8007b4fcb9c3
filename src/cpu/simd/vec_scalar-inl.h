// SPDX-License-Identifier: Apache-2.0
//
// Vector operations of level "scalar". See generic/vec-inl.h.

KVARN_INLINE Vf Min(Vf a, Vf b) { return a < b ? a : b; }
KVARN_INLINE Vf Max(Vf a, Vf b) { return a > b ? a : b; }

KVARN_INLINE Vf Sqrt(Vf x) {
  Vf r = x;
  for (int i = 0; i < kWidth; ++i) r[i] = SqrtF(x[i]);
  return r;
}

KVARN_INLINE Vf RoundToCode(Vf x, float top) { return Round(Min(Max(x, Splat(0.0F)), Splat(top))); }

KVARN_INLINE Vf MaxPositive(Vf a, Vf b) { return Max(a, b); }

KVARN_INLINE Vf MaxWhereEqual(Vf now, Vf a, Vf b, float positive) {
  return Max(now, a == b ? Splat(positive) : Splat(0.0F));
}

KVARN_INLINE Vf AddSigned(Vf a, Vf b, Vf sign) { return a + b * sign; }

KVARN_INLINE bool AnyLane(Vi mask) {
  int32_t any = 0;
  for (int i = 0; i < kWidth; ++i) any |= mask[i];
  return any != 0;
}

typedef uint8_t VecBytes __attribute__((vector_size(kWidth), aligned(1)));
KVARN_INLINE void StoreBytes(uint8_t* p, Vi v) {
  *reinterpret_cast<VecBytes*>(p) = __builtin_convertvector(v, VecBytes);
}
KVARN_INLINE Vf LoadBytes(const uint8_t* p) {
  Vf r = {};
  for (int i = 0; i < kWidth; ++i) r[i] = static_cast<float>(p[i]);
  return r;
}
