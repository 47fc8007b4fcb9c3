// SPDX-License-Identifier: Apache-2.0
//
// The vector type of a level: GCC/Clang vector extensions, kWidth floats wide. Only IEEE-exact
// operations; files that include this are compiled with -ffp-contract=off.
//
// No include guard by design: included once by each isa_*.cc inside its own namespace, which
// defines kWidth (4, 8 or 16) first.

typedef float Vf __attribute__((vector_size(kWidth * sizeof(float)), aligned(4)));
typedef int32_t Vi __attribute__((vector_size(kWidth * sizeof(float)), aligned(4)));

#define KVARN_INLINE static inline __attribute__((always_inline))
#define KVARN_INLINE_MEMBER inline __attribute__((always_inline))

KVARN_INLINE Vf Load(const float* p) { return *reinterpret_cast<const Vf*>(p); }
KVARN_INLINE void Store(float* p, Vf v) { *reinterpret_cast<Vf*>(p) = v; }
KVARN_INLINE Vf Splat(float x) { return Vf{} + x; }
KVARN_INLINE Vf Abs(Vf a) { return reinterpret_cast<Vf>(reinterpret_cast<Vi>(a) & 0x7FFFFFFF); }

KVARN_INLINE float MinF(float a, float b) { return a < b ? a : b; }
KVARN_INLINE float MaxF(float a, float b) { return a > b ? a : b; }
KVARN_INLINE float ClampF(float x, float lo, float hi) { return MinF(MaxF(x, lo), hi); }

// Round half to even for |x| < 2^22.
KVARN_INLINE Vf Round(Vf x) { return (x + 12582912.0F) - 12582912.0F; }
KVARN_INLINE float RoundF(float x) { return (x + 12582912.0F) - 12582912.0F; }

KVARN_INLINE float SqrtF(float x) { return __builtin_sqrtf(x); }  // x >= 0

// What compilers do not find by themselves: simd/vec_<level>-inl.h.
KVARN_INLINE Vf Min(Vf a, Vf b);  // a < b ? a : b
KVARN_INLINE Vf Max(Vf a, Vf b);  // a > b ? a : b
KVARN_INLINE Vf Sqrt(Vf x);       // x >= 0
// Lanes 0..255 as kWidth bytes. The first lane is the first byte: little-endian machines.
KVARN_INLINE void StoreBytes(uint8_t* p, Vi v);
// kWidth bytes as whole numbers.
KVARN_INLINE Vf LoadBytes(const uint8_t* p);

// x as a code: clamped to [0, top], a NaN to 0, then rounded half to even.
KVARN_INLINE Vf RoundToCode(Vf x, float top);
KVARN_INLINE Vf MaxPositive(Vf a, Vf b);  // the greater; neither is negative
// now, or `positive` in the lanes where a == b and it is greater.
KVARN_INLINE Vf MaxWhereEqual(Vf now, Vf a, Vf b, float positive);
// a + b * sign, sign being 1 or -1: rounded once either way.
KVARN_INLINE Vf AddSigned(Vf a, Vf b, Vf sign);
KVARN_INLINE bool AnyLane(Vi mask);  // of lanes that are 0 or -1

KVARN_INLINE Vf Fill(float x);          // Splat that keeps a negative zero, and costs no addition
KVARN_INLINE Vf Fma(Vf a, Vf b, Vf c);  // a * b + c; rounded once where the level has it
// Nearest integers of |x| < 2^22; ties may go either way.
KVARN_INLINE Vi RoundToInt(Vf x);
// w of 4 kWidth lanes, |w| <= 16256, as 128 high + low: bytes in the order of the lanes.
KVARN_INLINE void StoreParts(const Vi* w, int8_t* high, int8_t* low);
KVARN_INLINE float SumLanes(Vf v);  // in any order: not for the encoder, whose sums have theirs
KVARN_INLINE float MaxLanes(Vf v);
