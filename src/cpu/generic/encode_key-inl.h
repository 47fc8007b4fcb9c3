// SPDX-License-Identifier: Apache-2.0
//
// The balanced K encoder, docs/format.md section 5: K^[d,g] = (c - Q/2) a[d] t[g] + z[d].
// Rows are tokens in memory; the statistics of a channel run down a column, of which kWidth are
// quantised together. See vec-inl.h.

KVARN_INLINE Vf KeySpread(Vf mean, Vf mean_square) {
  const Vf variance = Max(mean_square - mean * mean, Splat(0.0F));
  return Min(Max(Sqrt(variance), Splat(0.125F)), Splat(8.0F));
}

// The mean m [stride] of the rows, and the scale of what is left without it.
static float KeyMeanAndScale(const EncodeTile& tile, int stride, float* m) {
  const int n = tile.n_rows;
  for (int d = 0; d < stride; d += kWidth) {
    Vf sum;
    SumTokens<1>(
        n,
        [&](int g, Vf* value) { *value = Load(tile.rows + static_cast<int64_t>(g) * stride + d); },
        &sum);
    Store(m + d, sum / static_cast<float>(n));
  }
  alignas(64) float squares[kMaxGroup];
  for (int g = 0; g < n; g += 4) {
    const FourRows row = RowsAt(g, n, stride);
    V4 total;
    SumFourRows<1>(
        tile.head_dim,
        [&](int r, int d, Vf* value) {
          const Vf u = Load(tile.rows + row.at[r] + d) - Load(m + d);
          *value = u * u;
        },
        &total);
    Store4(squares + g, total);
  }
  return TileScale(squares, n, tile.head_dim);
}

// Token scales t that equalise tokens and channels, times the tile's scale g0.
static void KeyTokenScales(const EncodeTile& tile, int stride, const float* m, float g0, float* t) {
  const int n = tile.n_rows;
  const float inverse_g0 = 1.0F / g0;
  alignas(64) float channel_weight[kMaxHeadDim + kRowAlign];
  alignas(64) float token_weight[kMaxGroup];
  alignas(64) float mean[kMaxGroup] = {};
  alignas(64) float mean_square[kMaxGroup] = {};
  for (int d = 0; d < stride; ++d) channel_weight[d] = inverse_g0;
  for (int pass = 0; pass < 2; ++pass) {
    RowMoments<true>(tile.rows, stride, n, tile.head_dim, m, channel_weight, mean, mean_square);
    for (int g = 0; g < kMaxGroup; g += kWidth) {
      const Vf spread = KeySpread(Load(mean + g), Load(mean_square + g));
      Store(t + g, spread);
      Store(token_weight + g, inverse_g0 / spread);
    }
    if (pass == 1) break;  // the channel scales of the last pass fold into a[d]
    for (int d = 0; d < stride; d += kWidth) {
      const ColumnMoments column =
          WeightedColumnMoments<true>(tile.rows + d, stride, Load(m + d), token_weight, n);
      Store(channel_weight + d, inverse_g0 / KeySpread(column.mean, column.mean_square));
    }
  }
  for (int g = 0; g < kMaxGroup; g += kWidth) Store(t + g, Load(t + g) * g0);
}

// kWidth channels of a K tile while they are quantised, copied together by the first pass: down a
// column of the tile itself, lines would push each other out of the first-level cache.
struct KeyColumn {
  alignas(64) float x[kMaxGroup * kWidth];  // X
  alignas(64) float y[kMaxGroup * kWidth];  // (X - m)/t
  const float* rows;                        // X in the tile, stride from row to row
  int stride;
  int n;
  const float* t;          // [n]
  const float* inverse_t;  // [n]
  float top;               // Q
  float half;              // Q/2
};

// y of token g, which is kept. kFirst: the first pass over this column.
template <bool kFirst>
KVARN_INLINE Vf KeyY(KeyColumn* k, int g, Vf m) {
  const Vf x = Load(kFirst ? k->rows + static_cast<int64_t>(g) * k->stride : k->x + g * kWidth);
  if (kFirst) Store(k->x + g * kWidth, x);
  const Vf y = (x - m) * k->inverse_t[g];
  Store(k->y + g * kWidth, y);
  return y;
}

// Extremes of y = (x - m)/t over the tokens.
struct ColumnRange {
  Vf low;
  Vf high;
};
template <bool kFirst>
KVARN_INLINE ColumnRange KeyRange(KeyColumn* k, Vf m) {
  constexpr int kChains = 4;
  Vf low[kChains];
  Vf high[kChains];
#pragma GCC unroll 4
  for (int p = 0; p < kChains; ++p) {
    low[p] = Splat(3e38F);
    high[p] = Splat(-3e38F);
  }
  int g = 0;
  for (; g + kChains <= k->n; g += kChains) {
#pragma GCC unroll 4
    for (int p = 0; p < kChains; ++p) {
      const Vf y = KeyY<kFirst>(k, g + p, m);
      low[p] = Min(low[p], y);
      high[p] = Max(high[p], y);
    }
  }
  for (; g < k->n; ++g) {
    const Vf y = KeyY<kFirst>(k, g, m);
    low[0] = Min(low[0], y);
    high[0] = Max(high[0], y);
  }
  return ColumnRange{Min(Min(low[0], low[1]), Min(low[2], low[3])),
                     Max(Max(high[0], high[1]), Max(high[2], high[3]))};
}

// max |y|
KVARN_INLINE Vf KeyExtreme(KeyColumn* k, Vf m) {
  Vf most[2] = {};
  int g = 0;
  for (; g + 2 <= k->n; g += 2) {
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) most[p] = MaxPositive(most[p], Abs(KeyY<false>(k, g + p, m)));
  }
  if (g < k->n) most[0] = MaxPositive(most[0], Abs(KeyY<false>(k, g, m)));
  return Max(most[0], most[1]);
}

// The sum of 1/t of the tokens that have the two extremes of y (the larger 1/t where several do, so
// that the order of tokens does not matter).
KVARN_INLINE Vf InverseScalesAtExtremes(const KeyColumn& k, const ColumnRange& range) {
  Vf low[2] = {};
  Vf high[2] = {};
  int g = 0;
  for (; g + 2 <= k.n; g += 2) {
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const Vf y = Load(k.y + (g + p) * kWidth);
      low[p] = MaxWhereEqual(low[p], y, range.low, k.inverse_t[g + p]);
      high[p] = MaxWhereEqual(high[p], y, range.high, k.inverse_t[g + p]);
    }
  }
  if (g < k.n) {
    const Vf y = Load(k.y + g * kWidth);
    low[0] = MaxWhereEqual(low[0], y, range.low, k.inverse_t[g]);
    high[0] = MaxWhereEqual(high[0], y, range.high, k.inverse_t[g]);
  }
  return Max(low[0], low[1]) + Max(high[0], high[1]);
}

// Two bits: a Gaussian step from the rms, unless the range is narrower.
KVARN_INLINE Vf KeyStep2(KeyColumn* k, Vf m) {
  Vf squares;
  Vf extreme = Splat(0.0F);
  SumTokens<1>(
      k->n,
      [&](int g, Vf* value) {
        const Vf y = KeyY<true>(k, g, m);
        extreme = MaxPositive(extreme, Abs(y));
        *value = y * y;
      },
      &squares);
  const Vf rms = Sqrt(squares / static_cast<float>(k->n));
  return Min(kGaussianStep4 * rms, 2.0F * extreme / 3.0F);
}

// Squared errors of kCount steps, in the units of X.
template <int kCount>
KVARN_INLINE void KeyErrors(const KeyColumn& k, const Vf* a, Vf* error) {
  Vf inverse_a[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) inverse_a[i] = Reciprocal(a[i]);
  SumTokens<kCount>(
      k.n,
      [&](int g, Vf* value) {
        const Vf y = Load(k.y + g * kWidth);
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) {
          const Vf code = RoundToCode(y * inverse_a[i] + k.half, k.top);
          const Vf e = (y - (code - k.half) * a[i]) * k.t[g];
          value[i] = e * e;
        }
      },
      error);
}

// Three bits and more: centre between the extremes, then the best fraction of the range. The step
// makes the two extremes equal, whatever the scales of their tokens.
KVARN_INLINE Vf KeyStepGrid(KeyColumn* k, const FractionGrid& grid, Vf* m) {
  for (int round = 0; round < 3; ++round) {
    const ColumnRange range = round == 0 ? KeyRange<true>(k, *m) : KeyRange<false>(k, *m);
    *m = *m + (range.low + range.high) / InverseScalesAtExtremes(*k, range);
  }
  const Vf widest = 2.0F * KeyExtreme(k, *m) / k->top;
  if (grid.count == 1) return widest * grid.value[0];
  Vf step[kFractions];
  Vf error[kFractions];
#pragma GCC unroll 8
  for (int i = 0; i < kFractions; ++i) step[i] = widest * grid.value[i];
  for (int i = 0; i < kFractions; i += kStepsAtOnce) {
    KeyErrors<kStepsAtOnce>(*k, step + i, error + i);
  }
  Vf best = step[0];
  Vf best_error = error[0];
#pragma GCC unroll 8
  for (int i = 1; i < kFractions; ++i) {
    best = error[i] < best_error ? step[i] : best;
    best_error = Min(error[i], best_error);
  }
  return best;
}

// Least squares of X on (c - Q/2) t; kept only where it makes sense. y is of the same centre.
KVARN_INLINE void KeyRefit(const KeyColumn& k, Vf* a, Vf* z) {
  const Vf inverse_a = Reciprocal(*a);
  const Vf before = *z;
  Vf mean[4];  // of B, B^2, E, E B
  SumTokens<4>(
      k.n,
      [&](int g, Vf* value) {
        const Vf e = Load(k.x + g * kWidth) - before;
        const Vf y = Load(k.y + g * kWidth);  // = e * k.inverse_t[g]
        const Vf code = RoundToCode(y * inverse_a + k.half, k.top);
        const Vf b = (code - k.half) * k.t[g];
        value[0] = b;
        value[1] = b * b;
        value[2] = e;
        value[3] = e * b;
      },
      mean);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) mean[i] = mean[i] / static_cast<float>(k.n);
  const Vf covariance = mean[3] - mean[2] * mean[0];
  const Vf variance = mean[1] - mean[0] * mean[0];
  const Vf slope = covariance / variance;
  const Vi fits = (covariance > 0.0F) & (variance > 0.0F);
  const Vf centre = before + (mean[2] - slope * mean[0]);
  *a = fits ? slope : *a;
  *z = fits ? centre : before;
}

// Final codes, [n] rows `stride` apart, and the step times the channel's gain.
KVARN_INLINE Vf KeyCodes(const KeyColumn& k, Vf step, Vf centre, int stride, uint8_t* codes) {
  const Vf inverse_step = Reciprocal(step);
  Vf total[2];
  SumTokens<2>(
      k.n,
      [&](int g, Vf* value) {
        const Vf e = Load(k.x + g * kWidth) - centre;
        const Vf code = RoundToCode(e * k.inverse_t[g] * inverse_step + k.half, k.top);
        StoreBytes(codes + g * stride, __builtin_convertvector(code, Vi));
        const Vf p = (code - k.half) * step * k.t[g];
        value[0] = e * e;
        value[1] = e * p;
      },
      total);
  return step * Gain(total[0], total[1]);
}

// Unit gain of each token, with the channels' final steps. codes [n][stride].
static void KeyTokenGain(const EncodeTile& tile, const uint8_t* codes, int stride, const float* a,
                         const float* z, float half, float* t) {
  const int n = tile.n_rows;
  for (int g = 0; g < n; g += 4) {
    const FourRows row = RowsAt(g, n, stride);
    V4 total[2];
    SumFourRows<2>(
        tile.head_dim,
        [&](int r, int d, Vf* value) {
          const Vf e = Load(tile.rows + row.at[r] + d) - Load(z + d);
          const Vf code = LoadBytes(codes + row.at[r] + d);
          const Vf p = (code - half) * Load(a + d) * t[g + r];
          value[0] = e * e;
          value[1] = e * p;
        },
        total);
    Store4(t + g, Load4(t + g) * Gain(total[0], total[1]));
  }
}

static void EncodeKey(EncodeTile* tile) {
  const int n = tile->n_rows;
  const int dim = tile->head_dim;
  const int stride = RowStride(dim);
  alignas(64) float m[kMaxHeadDim + kRowAlign];
  alignas(64) float a[kMaxHeadDim + kRowAlign];
  alignas(64) float z[kMaxHeadDim + kRowAlign];
  alignas(64) uint16_t z_half[kMaxHeadDim + kRowAlign];
  alignas(64) float t[kMaxGroup];
  alignas(64) float inverse_t[kMaxGroup];

  const float g0 = KeyMeanAndScale(*tile, stride, m);
  KeyTokenScales(*tile, stride, m, g0, t);
  for (int g = 0; g < kMaxGroup; g += kWidth) Store(inverse_t + g, 1.0F / Load(t + g));

  const float top = static_cast<float>((1 << tile->bits) - 1);
  KeyColumn k;
  k.stride = stride;
  k.n = n;
  k.t = t;
  k.inverse_t = inverse_t;
  k.top = top;
  k.half = top * 0.5F;
  // Where whole vectors of codes would reach beyond a row, they wait in the scratch.
  uint8_t* codes = stride == dim ? tile->codes : reinterpret_cast<uint8_t*>(tile->scratch);
  for (int d = 0; d < stride; d += kWidth) {
    k.rows = tile->rows + d;
    Vf centre = Load(m + d);
    Vf step =
        tile->bits == 2 ? KeyStep2(&k, centre) : KeyStepGrid(&k, Fractions(tile->bits), &centre);
    KeyRefit(k, &step, &centre);
    // z is stored as fp16: the codes see what the reader sees.
    Store(z + d, centre);
    StoreScales(z + d, kWidth, z_half + d, &tile->saturated);
    ToFloat(z_half + d, z + d, kWidth);
    Store(a + d, KeyCodes(k, step, Load(z + d), stride, codes + d));
  }

  KeyTokenGain(*tile, codes, stride, a, z, k.half, t);
  const PowerSplit split = SplitScale(g0);
  for (int g = 0; g < n; ++g) t[g] = t[g] * split.down;
  StoreScales(t, n, tile->other, &tile->saturated);
  uint32_t any_token = 0;
  for (int g = 0; g < n; ++g) any_token |= tile->other[g];
  for (int d = 0; d < dim; ++d) a[d] = any_token != 0 ? a[d] * split.up : 0.0F;
  StoreScales(a, dim, tile->scale, &tile->saturated);
  __builtin_memcpy(tile->zero, z_half, sizeof(uint16_t) * static_cast<size_t>(dim));
  for (int g = 0; g < n && stride != dim; ++g) {
    __builtin_memcpy(tile->codes + static_cast<int64_t>(g) * dim,
                     codes + static_cast<int64_t>(g) * stride, static_cast<size_t>(dim));
  }
}
