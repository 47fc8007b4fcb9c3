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

typedef uint64_t VecPairs __attribute__((vector_size(kWidth * sizeof(float)), aligned(4)));
KVARN_INLINE void StoreBytes(uint8_t* p, Vi v) {
  VecPairs pairs = reinterpret_cast<VecPairs>(v);
  pairs = pairs | (pairs >> 24);
  const uint32_t bytes =
      static_cast<uint32_t>(pairs[0] & 0xFFFFU) | (static_cast<uint32_t>(pairs[1] & 0xFFFFU) << 16);
  __builtin_memcpy(p, &bytes, sizeof(bytes));
}
typedef uint8_t VecBytes __attribute__((vector_size(kWidth), aligned(1)));
KVARN_INLINE Vf LoadBytes(const uint8_t* p) {
  const Vi whole = __builtin_convertvector(*reinterpret_cast<const VecBytes*>(p), Vi);
  return __builtin_convertvector(whole, Vf);
}

KVARN_INLINE Vf Fill(float x) { return Vf{x, x, x, x}; }
KVARN_INLINE Vf Fma(Vf a, Vf b, Vf c) { return a * b + c; }
KVARN_INLINE Vi RoundToInt(Vf x) { return __builtin_convertvector(Round(x), Vi); }
KVARN_INLINE float SumLanes(Vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }
KVARN_INLINE float MaxLanes(Vf v) { return MaxF(MaxF(v[0], v[2]), MaxF(v[1], v[3])); }
KVARN_INLINE void StoreParts(const Vi* w, int8_t* high, int8_t* low) {
  for (int i = 0; i < 4 * kWidth; ++i) {
    const int32_t value = w[i / kWidth][i % kWidth];
    const int32_t upper = (value + 64) >> 7;
    high[i] = static_cast<int8_t>(upper);
    low[i] = static_cast<int8_t>(value - upper * 128);
  }
}
