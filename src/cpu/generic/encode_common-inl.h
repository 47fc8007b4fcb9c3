// SPDX-License-Identifier: Apache-2.0
//
// Pieces that the K and the V encoder share. See vec-inl.h on inclusion.

// Range fractions that the quantiser tries, widest first; the first of equals wins.
struct FractionGrid {
  int count;
  float value[6];
};

static const FractionGrid kFractions3 = {6, {1.0F, 0.95F, 0.9F, 0.85F, 0.8F, 0.7F}};
static const FractionGrid kFractions4 = {6, {1.0F, 0.97F, 0.94F, 0.91F, 0.88F, 0.82F}};
static const FractionGrid kFractions8 = {1, {1.0F, 0, 0, 0, 0, 0}};

KVARN_INLINE const FractionGrid& Fractions(int bits) {
  return bits == 3 ? kFractions3 : bits == 4 ? kFractions4 : kFractions8;
}

// Step of four uniform levels on a Gaussian with the least squared error (Max 1960).
static const float kGaussianStep4 = 0.9957F;

KVARN_INLINE Vf Reciprocal(Vf x) { return x > 0.0F ? 1.0F / x : Splat(0.0F); }
KVARN_INLINE float ReciprocalF(float x) { return x > 0.0F ? 1.0F / x : 0.0F; }

// Gain that removes the shrinkage of a fit: energy / projection, within [1/2, 2].
KVARN_INLINE Vf Gain(Vf energy, Vf projection) {
  const Vf ratio = Min(Max(energy / projection, Splat(0.5F)), Splat(2.0F));
  return projection > 0.0F ? ratio : Splat(1.0F);
}

KVARN_INLINE float GainF(float energy, float projection) {
  return projection > 0.0F ? ClampF(energy / projection, 0.5F, 2.0F) : 1.0F;
}

// A scale as the record stores it; one that would round to infinity (65520 and more) saturates and
// is counted.
KVARN_INLINE uint16_t StoreScale(float value, uint64_t* saturated) {
  if (__builtin_fabsf(value) >= 65520.0F) *saturated += 1;
  return FloatToHalf(value);
}

// A power of two near 1/sqrt(x) and its inverse: moves half of a tile's scale from one fp16 vector
// to the other, exactly, so that tiny and huge tiles keep their precision.
struct PowerSplit {
  float down;  // 2^-k
  float up;    // 2^k
};

static PowerSplit SplitScale(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  const int k = (static_cast<int>(bits >> 23) - 127) / 2;
  const uint32_t down = static_cast<uint32_t>(127 - k) << 23;
  const uint32_t up = static_cast<uint32_t>(127 + k) << 23;
  PowerSplit split;
  __builtin_memcpy(&split.down, &down, sizeof(down));
  __builtin_memcpy(&split.up, &up, sizeof(up));
  return split;
}

// Root mean square of a tile, at least 1e-8. `squares` [n] is scratch.
static float TileScale(const float* rows, int n, int stride, int head_dim, float* squares) {
  for (int g = 0; g < n; ++g) {
    const float* x = rows + static_cast<int64_t>(g) * stride;
    LaneSum sum = ZeroLanes();
    for (int d = 0; d < head_dim; d += 32) {
      for (int i = 0; i < 32 / kWidth; ++i) {
        const Vf v = Load(x + d + i * kWidth);
        sum.part[i] = sum.part[i] + v * v;
      }
    }
    squares[g] = Join(sum);
  }
  const float mean = TokenSumF(squares, n) / static_cast<float>(n * head_dim);
  return MaxF(SqrtF(mean), 1e-8F);
}

struct RowMoments {
  float mean;
  float mean_square;
};

// Mean and mean square over channels of x[d] * weight[d].
KVARN_INLINE RowMoments WeightedRowMoments(const float* x, const float* weight, int head_dim) {
  LaneSum first = ZeroLanes();
  LaneSum second = ZeroLanes();
  for (int d = 0; d < head_dim; d += 32) {
    for (int i = 0; i < 32 / kWidth; ++i) {
      const Vf y = Load(x + d + i * kWidth) * Load(weight + d + i * kWidth);
      first.part[i] = first.part[i] + y;
      second.part[i] = second.part[i] + y * y;
    }
  }
  const float count = static_cast<float>(head_dim);
  return RowMoments{Join(first) / count, Join(second) / count};
}

struct ColumnMoments {
  Vf mean;
  Vf mean_square;
};

// Mean and mean square over tokens of x[g][d] * weight[g], for kWidth channels from x on.
KVARN_INLINE ColumnMoments WeightedColumnMoments(const float* x, int stride, const float* weight,
                                                 int n) {
  TokenSums first = {};
  TokenSums second = {};
  for (int g = 0; g < n; ++g) {
    const Vf y = Load(x + static_cast<int64_t>(g) * stride) * weight[g];
    first.part[g & 7] = first.part[g & 7] + y;
    second.part[g & 7] = second.part[g & 7] + y * y;
  }
  const float count = static_cast<float>(n);
  return ColumnMoments{Join(first) / count, Join(second) / count};
}

// Codes as whole floats [n][stride] -> bytes [n][head_dim].
static void StoreCodes(const float* codes, int stride, EncodeTile* tile) {
  for (int g = 0; g < tile->n_rows; ++g) {
    const float* from = codes + static_cast<int64_t>(g) * stride;
    uint8_t* to = tile->codes + static_cast<int64_t>(g) * tile->head_dim;
    for (int d = 0; d < tile->head_dim; ++d) {
      to[d] = static_cast<uint8_t>(static_cast<int32_t>(from[d]));
    }
  }
}
