// SPDX-License-Identifier: Apache-2.0
//
// The balanced K encoder, docs/format.md section 5: K^[d,g] = (c - Q/2) a[d] t[g] + z[d].
// Rows are tokens in memory; the statistics of a channel run down a column. See vec-inl.h.

// Token scales t that equalise tokens and channels; t includes the tile's scale, which is returned.
static float KeyTokenScales(const EncodeTile& tile, const float* centred, int stride, float* t) {
  const int n = tile.n_rows;
  const float g0 = TileScale(centred, n, stride, tile.head_dim, t);
  const float inverse_g0 = 1.0F / g0;
  alignas(64) float channel_weight[kMaxHeadDim + kRowAlign];
  alignas(64) float token_weight[kMaxGroup];
  for (int d = 0; d < stride; ++d) channel_weight[d] = inverse_g0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int g = 0; g < n; ++g) {
      const RowMoments row = WeightedRowMoments(centred + static_cast<int64_t>(g) * stride,
                                                channel_weight, tile.head_dim);
      const float variance = MaxF(row.mean_square - row.mean * row.mean, 0.0F);
      t[g] = ClampF(SqrtF(variance), 0.125F, 8.0F);
      token_weight[g] = inverse_g0 / t[g];
    }
    if (pass == 1) break;  // the channel scales of the last pass fold into a[d]
    for (int d = 0; d < stride; d += kWidth) {
      const ColumnMoments column = WeightedColumnMoments(centred + d, stride, token_weight, n);
      const Vf variance = Max(column.mean_square - column.mean * column.mean, Splat(0.0F));
      const Vf r = Min(Max(Sqrt(variance), Splat(0.125F)), Splat(8.0F));
      Store(channel_weight + d, inverse_g0 / r);
    }
  }
  for (int g = 0; g < n; ++g) t[g] = t[g] * g0;
  return g0;
}

// One vector of channels of a K tile while it is quantised.
struct KeyColumn {
  const float* x;  // X[0][d], stride from row to row
  int stride;
  int n;
  const float* t;          // [n]
  const float* inverse_t;  // [n]
  float top;               // Q
  float half;              // Q/2
};

KVARN_INLINE Vf KeyRow(const KeyColumn& k, int g) {
  return Load(k.x + static_cast<int64_t>(g) * k.stride);
}

// Extremes of (x - m)/t over the tokens, and 1/t of the tokens that have them (the larger 1/t where
// several do, so that the order of tokens does not matter).
struct ColumnRange {
  Vf low;
  Vf high;
  Vf inverse_t_low;
  Vf inverse_t_high;
};
KVARN_INLINE ColumnRange KeyRange(const KeyColumn& k, Vf m) {
  ColumnRange range = {Splat(3e38F), Splat(-3e38F), Splat(0.0F), Splat(0.0F)};
  for (int g = 0; g < k.n; ++g) {
    const Vf inverse_t = Splat(k.inverse_t[g]);
    const Vf y = (KeyRow(k, g) - m) * inverse_t;
    const Vf at_low = Max(inverse_t, range.inverse_t_low);
    const Vf at_high = Max(inverse_t, range.inverse_t_high);
    range.inverse_t_low =
        y < range.low ? inverse_t : (y == range.low ? at_low : range.inverse_t_low);
    range.inverse_t_high =
        y > range.high ? inverse_t : (y == range.high ? at_high : range.inverse_t_high);
    range.low = Min(range.low, y);
    range.high = Max(range.high, y);
  }
  return range;
}

// Two bits: a Gaussian step from the rms, unless the range is narrower.
KVARN_INLINE Vf KeyStep2(const KeyColumn& k, Vf m) {
  TokenSums squares = {};
  for (int g = 0; g < k.n; ++g) {
    const Vf y = (KeyRow(k, g) - m) * k.inverse_t[g];
    squares.part[g & 7] = squares.part[g & 7] + y * y;
  }
  const ColumnRange range = KeyRange(k, m);
  const Vf extreme = Max(Abs(range.low), Abs(range.high));
  const Vf rms = Sqrt(Join(squares) / static_cast<float>(k.n));
  return Min(kGaussianStep4 * rms, 2.0F * extreme / 3.0F);
}

// Squared error of step a, in the units of X.
KVARN_INLINE Vf KeyError(const KeyColumn& k, Vf m, Vf a) {
  const Vf inverse_a = Reciprocal(a);
  TokenSums error = {};
  for (int g = 0; g < k.n; ++g) {
    const Vf y = (KeyRow(k, g) - m) * k.inverse_t[g];
    const Vf code = RoundToCode(y * inverse_a + k.half, k.top);
    const Vf e = (y - (code - k.half) * a) * k.t[g];
    error.part[g & 7] = error.part[g & 7] + e * e;
  }
  return Join(error);
}

// Three bits and more: centre between the extremes, then the best fraction of the range. The step
// makes the two extremes equal, whatever the scales of their tokens.
KVARN_INLINE Vf KeyStepGrid(const KeyColumn& k, const FractionGrid& grid, Vf* m) {
  for (int round = 0; round < 3; ++round) {
    const ColumnRange range = KeyRange(k, *m);
    *m = *m + (range.low + range.high) / (range.inverse_t_low + range.inverse_t_high);
  }
  const ColumnRange range = KeyRange(k, *m);
  const Vf widest = 2.0F * Max(Abs(range.low), Abs(range.high)) / k.top;
  Vf best = widest * grid.value[0];
  if (grid.count == 1) return best;
  Vf best_error = KeyError(k, *m, best);
  for (int i = 1; i < grid.count; ++i) {
    const Vf a = widest * grid.value[i];
    const Vf error = KeyError(k, *m, a);
    best = error < best_error ? a : best;
    best_error = Min(error, best_error);
  }
  return best;
}

// Least squares of X on (c - Q/2) t; kept only where it makes sense.
KVARN_INLINE void KeyRefit(const KeyColumn& k, Vf* a, Vf* z) {
  const Vf inverse_a = Reciprocal(*a);
  TokenSums sum_b = {};
  TokenSums sum_bb = {};
  TokenSums sum_e = {};
  TokenSums sum_eb = {};
  for (int g = 0; g < k.n; ++g) {
    const Vf e = KeyRow(k, g) - *z;
    const Vf code = RoundToCode(e * k.inverse_t[g] * inverse_a + k.half, k.top);
    const Vf b = (code - k.half) * k.t[g];
    const int p = g & 7;
    sum_b.part[p] = sum_b.part[p] + b;
    sum_bb.part[p] = sum_bb.part[p] + b * b;
    sum_e.part[p] = sum_e.part[p] + e;
    sum_eb.part[p] = sum_eb.part[p] + e * b;
  }
  const float count = static_cast<float>(k.n);
  const Vf mean_b = Join(sum_b) / count;
  const Vf mean_e = Join(sum_e) / count;
  const Vf covariance = Join(sum_eb) / count - mean_e * mean_b;
  const Vf variance = Join(sum_bb) / count - mean_b * mean_b;
  const Vf slope = covariance / variance;
  const Vi fits = (covariance > 0.0F) & (variance > 0.0F);
  const Vf centre = *z + (mean_e - slope * mean_b);
  *a = fits ? slope : *a;
  *z = fits ? centre : *z;
}

// Unit gain of each token, with the channels' final steps.
static void KeyTokenGain(const EncodeTile& tile, const float* codes, const float* a, const float* z,
                         float half, float* t) {
  const int stride = RowStride(tile.head_dim);
  for (int g = 0; g < tile.n_rows; ++g) {
    const float* x = tile.rows + static_cast<int64_t>(g) * stride;
    const float* code = codes + static_cast<int64_t>(g) * stride;
    LaneSum energy = ZeroLanes();
    LaneSum projection = ZeroLanes();
    for (int d = 0; d < tile.head_dim; d += 32) {
      for (int i = 0; i < 32 / kWidth; ++i) {
        const int at = d + i * kWidth;
        const Vf e = Load(x + at) - Load(z + at);
        const Vf p = (Load(code + at) - half) * Load(a + at) * t[g];
        energy.part[i] = energy.part[i] + e * e;
        projection.part[i] = projection.part[i] + e * p;
      }
    }
    t[g] = t[g] * GainF(Join(energy), Join(projection));
  }
}

static void EncodeKey(EncodeTile* tile) {
  const int n = tile->n_rows;
  const int stride = RowStride(tile->head_dim);
  alignas(64) float m[kMaxHeadDim + kRowAlign];
  alignas(64) float a[kMaxHeadDim + kRowAlign];
  alignas(64) float z[kMaxHeadDim + kRowAlign];
  alignas(64) float t[kMaxGroup];
  alignas(64) float inverse_t[kMaxGroup];

  float* centred = tile->scratch;
  for (int d = 0; d < stride; d += kWidth) {
    TokenSums sum = {};
    for (int g = 0; g < n; ++g) {
      sum.part[g & 7] = sum.part[g & 7] + Load(tile->rows + static_cast<int64_t>(g) * stride + d);
    }
    const Vf mean = Join(sum) / static_cast<float>(n);
    Store(m + d, mean);
    for (int g = 0; g < n; ++g) {
      const int64_t at = static_cast<int64_t>(g) * stride + d;
      Store(centred + at, Load(tile->rows + at) - mean);
    }
  }
  const float g0 = KeyTokenScales(*tile, centred, stride, t);
  for (int g = 0; g < n; ++g) inverse_t[g] = 1.0F / t[g];

  const float top = static_cast<float>((1 << tile->bits) - 1);
  KeyColumn k = {nullptr, stride, n, t, inverse_t, top, top * 0.5F};
  float* codes = tile->scratch;  // the centred tile is done with
  for (int d = 0; d < stride; d += kWidth) {
    k.x = tile->rows + d;
    Vf centre = Load(m + d);
    Vf step =
        tile->bits == 2 ? KeyStep2(k, centre) : KeyStepGrid(k, Fractions(tile->bits), &centre);
    KeyRefit(k, &step, &centre);
    for (int i = 0; i < kWidth; ++i) {  // z is stored as fp16: the codes see what the reader sees
      centre[i] = HalfToFloat(StoreScale(centre[i], &tile->saturated));
    }
    Store(z + d, centre);
    const Vf inverse_step = Reciprocal(step);
    TokenSums energy = {};
    TokenSums projection = {};
    for (int g = 0; g < n; ++g) {
      const Vf e = KeyRow(k, g) - centre;
      const Vf code = RoundToCode(e * inverse_t[g] * inverse_step + k.half, top);
      Store(codes + static_cast<int64_t>(g) * stride + d, code);
      const Vf p = (code - k.half) * step * t[g];
      energy.part[g & 7] = energy.part[g & 7] + e * e;
      projection.part[g & 7] = projection.part[g & 7] + e * p;
    }
    Store(a + d, step * Gain(Join(energy), Join(projection)));
  }

  KeyTokenGain(*tile, codes, a, z, k.half, t);
  const PowerSplit split = SplitScale(g0);
  bool any_token = false;
  for (int g = 0; g < n; ++g) {
    tile->other[g] = StoreScale(t[g] * split.down, &tile->saturated);
    any_token = any_token || tile->other[g] != 0;
  }
  for (int d = 0; d < tile->head_dim; ++d) {
    tile->scale[d] = any_token ? StoreScale(a[d] * split.up, &tile->saturated) : uint16_t{0};
    tile->zero[d] = StoreScale(z[d], &tile->saturated);
  }
  StoreCodes(codes, stride, tile);
}
