// SPDX-License-Identifier: Apache-2.0
//
// Rotation of rows by an orthonormal Hadamard matrix: butterflies of distance 1, 2, 4, ... inside
// each block, then the small matrix across blocks in ascending order, then one multiply by the
// scale. That order is part of the format (docs/format.md section 2). See vec-inl.h on inclusion.

KVARN_INLINE void ButterflyScalar(float* x, int distance, int block) {
  for (int start = 0; start < block; start += 2 * distance) {
    for (int i = start; i < start + distance; ++i) {
      const float a = x[i];
      const float b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  }
}

KVARN_INLINE void ButterflyVector(float* x, int distance, int block) {
  for (int start = 0; start < block; start += 2 * distance) {
    for (int i = start; i < start + distance; i += kWidth) {
      const Vf a = Load(x + i);
      const Vf b = Load(x + i + distance);
      Store(x + i, a + b);
      Store(x + i + distance, a - b);
    }
  }
}

template <int... kLanes>
struct LaneList {};

// LaneList<0, 1, ..., kWidth - 1>
template <int kCount, int... kLanes>
struct MakeLanes : MakeLanes<kCount - 1, kCount - 1, kLanes...> {};
template <int... kLanes>
struct MakeLanes<0, kLanes...> {
  using List = LaneList<kLanes...>;
};
using AllLanes = MakeLanes<kWidth>::List;

// Lane i of the result is lane i ^ kDistance of x.
template <int kDistance, int... kLanes>
KVARN_INLINE Vf ExchangeLanes(Vf x, LaneList<kLanes...>) {
  return __builtin_shufflevector(x, x, (kLanes ^ kDistance)...);
}

// Butterfly inside one vector: lane i gets x[i] + x[i^k], or x[i^k] - x[i] in the upper half.
template <int kDistance>
KVARN_INLINE Vf ButterflyInside(Vf x) {
  Vf sign = {};
  for (int i = 0; i < kWidth; ++i) sign[i] = (i & kDistance) != 0 ? -1.0F : 1.0F;
  return AddSigned(ExchangeLanes<kDistance>(x, AllLanes{}), x, sign);
}

// All butterflies inside kVectors * kWidth numbers, which stay in registers. Where they are the
// last step (kScaled), the scale too: adding +0 turns a negative zero into a positive one, so that
// minimum and maximum have one answer.
template <int kVectors, bool kScaled>
KVARN_INLINE void RotateInRegisters(float* x, float scale) {
  Vf v[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    v[i] = ButterflyInside<2>(ButterflyInside<1>(Load(x + i * kWidth)));
    if constexpr (kWidth > 4) v[i] = ButterflyInside<4>(v[i]);
    if constexpr (kWidth > 8) v[i] = ButterflyInside<8>(v[i]);
  }
#pragma GCC unroll 8
  for (int distance = 1; distance < kVectors; distance *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      if ((i & distance) != 0) continue;
      const Vf a = v[i];
      const Vf b = v[i + distance];
      v[i] = a + b;
      v[i + distance] = a - b;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    Store(x + i * kWidth, kScaled ? v[i] * scale + Splat(0.0F) : v[i]);
  }
}

// False where the scale is left to do.
template <bool kScaled>
KVARN_INLINE bool RotateBlock(float* x, int block, float scale) {
  if (block < kWidth) {
    for (int distance = 1; distance < block; distance *= 2) ButterflyScalar(x, distance, block);
    return false;
  }
  switch (block / kWidth) {
    case 1:
      RotateInRegisters<1, kScaled>(x, scale);
      return kScaled;
    case 2:
      RotateInRegisters<2, kScaled>(x, scale);
      return kScaled;
    case 4:
      RotateInRegisters<4, kScaled>(x, scale);
      return kScaled;
    case 8:
      RotateInRegisters<8, kScaled>(x, scale);
      return kScaled;
    default:
      break;
  }
  for (int i = 0; i < block; i += 8 * kWidth) RotateInRegisters<8, false>(x + i, scale);
  for (int distance = 8 * kWidth; distance < block; distance *= 2) {
    ButterflyVector(x, distance, block);
  }
  return false;
}

// y[j] = sum_i small[i][j] x[i] (or small[j][i] for the inverse), one block a term.
KVARN_INLINE void MixBlocks(const Rotation& rotation, float* x, bool inverse) {
  float mixed[kMaxHeadDim];
  const int m = rotation.small_dim;
  const int block = rotation.block;
  for (int j = 0; j < m; ++j) {
    float* out = mixed + j * block;
    for (int b = 0; b < block; ++b) out[b] = 0.0F;
    for (int i = 0; i < m; ++i) {
      const float sign =
          static_cast<float>(inverse ? rotation.small[j * m + i] : rotation.small[i * m + j]);
      for (int b = 0; b < block; ++b) out[b] = out[b] + sign * x[i * block + b];
    }
  }
  for (int d = 0; d < rotation.head_dim; ++d) x[d] = mixed[d];
}

static void Rotate(const Rotation& rotation, float* rows, int n, int stride, bool inverse) {
  for (int g = 0; g < n; ++g) {
    float* x = rows + static_cast<int64_t>(g) * stride;
    if (rotation.small == nullptr) {
      if (RotateBlock<true>(x, rotation.block, rotation.scale)) continue;
    } else {
      for (int i = 0; i < rotation.small_dim; ++i) {
        RotateBlock<false>(x + i * rotation.block, rotation.block, rotation.scale);
      }
      MixBlocks(rotation, x, inverse);
    }
    for (int d = 0; d < rotation.head_dim; ++d) x[d] = x[d] * rotation.scale + 0.0F;
  }
}
