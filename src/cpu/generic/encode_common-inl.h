// SPDX-License-Identifier: Apache-2.0
//
// Pieces that the K and the V encoder share. See vec-inl.h on inclusion.

// Range fractions that the quantiser tries, widest first; the first of equals wins.
constexpr int kFractions = 6;
struct FractionGrid {
  int count;  // 1 or kFractions
  float value[kFractions];
};

static const FractionGrid kFractions3 = {6, {1.0F, 0.95F, 0.9F, 0.85F, 0.8F, 0.7F}};
static const FractionGrid kFractions4 = {6, {1.0F, 0.97F, 0.94F, 0.91F, 0.88F, 0.82F}};
static const FractionGrid kFractions8 = {1, {1.0F, 0, 0, 0, 0, 0}};

KVARN_INLINE const FractionGrid& Fractions(int bits) {
  return bits == 3 ? kFractions3 : bits == 4 ? kFractions4 : kFractions8;
}

// Steps whose errors are summed in one pass: each takes three registers.
constexpr int kStepsAtOnce = kWidth == 16 ? 6 : 3;

// Step of four uniform levels on a Gaussian with the least squared error (Max 1960).
static const float kGaussianStep4 = 0.9957F;

template <typename V>
KVARN_INLINE V Reciprocal(V x) {
  return x > 0.0F ? 1.0F / x : V{};
}

// Gain that removes the shrinkage of a fit: energy / projection, within [1/2, 2].
template <typename V>
KVARN_INLINE V Gain(V energy, V projection) {
  V ratio = energy / projection;
  ratio = ratio > 0.5F ? ratio : V{} + 0.5F;
  ratio = ratio < 2.0F ? ratio : V{} + 2.0F;
  return projection > 0.0F ? ratio : V{} + 1.0F;
}

// Scales as the record stores them; those that would round to infinity (65520 and more) saturate
// and are counted.
static void StoreScales(const float* in, int count, uint16_t* out, uint64_t* saturated) {
  alignas(64) float clamped[kMaxHeadDim + kRowAlign];
  int d = 0;
  Vi beyond = {};
  for (; d + kWidth <= count; d += kWidth) {
    const Vf x = Load(in + d);
    beyond = beyond | (Abs(x) >= 65520.0F);
    Store(clamped + d, Min(Max(x, Splat(-kHalfMax)), Splat(kHalfMax)));
  }
  bool any = AnyLane(beyond);
  for (; d < count; ++d) {
    any = any || __builtin_fabsf(in[d]) >= 65520.0F;
    clamped[d] = ClampF(in[d], -kHalfMax, kHalfMax);
  }
  if (any) {
    for (int i = 0; i < count; ++i) {
      if (__builtin_fabsf(in[i]) >= 65520.0F) *saturated += 1;
    }
  }
  ToHalf(clamped, out, count);
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

// Where rows g .. g + 3 start; the last row stands for those beyond the end.
struct FourRows {
  int64_t at[4];
};
KVARN_INLINE FourRows RowsAt(int g, int n, int stride) {
  FourRows rows;
  for (int r = 0; r < 4; ++r) {
    rows.at[r] = static_cast<int64_t>(g + r < n ? g + r : n - 1) * stride;
  }
  return rows;
}

// Root mean square of a tile from the sums of squares of its rows, at least 1e-8. squares
// [kMaxGroup]; from n on it is overwritten.
static float TileScale(float* squares, int n, int head_dim) {
  for (int g = n; g < kMaxGroup; ++g) squares[g] = 0.0F;
  const float mean = SumTokensF(squares, n) / static_cast<float>(n * head_dim);
  return MaxF(SqrtF(mean), 1e-8F);
}

// Means over channels of (x[g][d] - centre[d]) * weight[d] and of its square, for each row; mean
// and mean_square [kMaxGroup]. kCentred: without one, `centre` is not read.
template <bool kCentred>
static void RowMoments(const float* rows, int stride, int n, int head_dim, const float* centre,
                       const float* weight, float* mean, float* mean_square) {
  const float count = static_cast<float>(head_dim);
  for (int g = 0; g < n; g += 4) {
    const FourRows row = RowsAt(g, n, stride);
    V4 total[2];
    SumFourRows<2>(
        head_dim,
        [&](int r, int d, Vf* value) {
          Vf x = Load(rows + row.at[r] + d);
          if (kCentred) x = x - Load(centre + d);
          const Vf y = x * Load(weight + d);
          value[0] = y;
          value[1] = y * y;
        },
        total);
    Store4(mean + g, total[0] / count);
    Store4(mean_square + g, total[1] / count);
  }
}

struct ColumnMoments {
  Vf mean;
  Vf mean_square;
};

// Mean and mean square over tokens of (x[g][d] - centre[d]) * weight[g], for kWidth channels from x
// on.
template <bool kCentred>
KVARN_INLINE ColumnMoments WeightedColumnMoments(const float* x, int stride, Vf centre,
                                                 const float* weight, int n) {
  Vf total[2];
  SumTokens<2>(
      n,
      [&](int g, Vf* value) {
        const Vf from = Load(x + static_cast<int64_t>(g) * stride);
        const Vf y = (kCentred ? from - centre : from) * weight[g];
        value[0] = y;
        value[1] = y * y;
      },
      total);
  const float count = static_cast<float>(n);
  return ColumnMoments{total[0] / count, total[1] / count};
}
