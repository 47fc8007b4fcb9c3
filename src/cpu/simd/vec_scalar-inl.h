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

KVARN_INLINE Vf Nearest(Vf x) { return Round(x); }

typedef uint8_t VecBytes __attribute__((vector_size(kWidth), aligned(1)));
KVARN_INLINE void StoreBytes(uint8_t* p, Vi v) {
  *reinterpret_cast<VecBytes*>(p) = __builtin_convertvector(v, VecBytes);
}
KVARN_INLINE Vf LoadBytes(const uint8_t* p) {
  Vf r = {};
  for (int i = 0; i < kWidth; ++i) r[i] = static_cast<float>(p[i]);
  return r;
}
