// SPDX-License-Identifier: Apache-2.0
//
// The V encoder, docs/format.md section 6: V^[g,d] = (c a[g] + z'[g]) C[d]. See vec-inl.h.

// Spread of one axis: the standard deviation, but not below a quarter of the rms, so that a
// constant row or channel keeps a sensible scale.
KVARN_INLINE float SpreadF(float mean, float mean_square) {
  const float variance = MaxF(mean_square - mean * mean, 0.0F);
  return MaxF(SqrtF(variance), SqrtF(mean_square) * 0.25F);
}
KVARN_INLINE Vf Spread(Vf mean, Vf mean_square) {
  const Vf variance = Max(mean_square - mean * mean, Splat(0.0F));
  return Max(Sqrt(variance), Sqrt(mean_square) * 0.25F);
}

// Channel scales C, times the tile's scale g0, which is returned.
static float ValueChannelScales(const EncodeTile& tile, int stride, float* channel) {
  const int n = tile.n_rows;
  alignas(64) float token[kMaxGroup];
  alignas(64) float token_weight[kMaxGroup];
  alignas(64) float channel_weight[kMaxHeadDim + kRowAlign];
  const float g0 = TileScale(tile.rows, n, stride, tile.head_dim, token);
  const float inverse_g0 = 1.0F / g0;
  for (int g = 0; g < n; ++g) {
    token[g] = 1.0F;
    token_weight[g] = inverse_g0;
  }
  for (int d = 0; d < stride; ++d) channel[d] = 1.0F;
  for (int pass = 0; pass < 2; ++pass) {
    for (int d = 0; d < stride; d += kWidth) {
      const ColumnMoments column = WeightedColumnMoments(tile.rows + d, stride, token_weight, n);
      const Vf before = Load(channel + d);
      const Vf spread = Spread(column.mean, column.mean_square);
      const Vf c = Min(Max(spread, before * 1e-3F), before * 1e3F);
      Store(channel + d, c);
      Store(channel_weight + d, inverse_g0 / c);
    }
    if (pass == 1) break;  // the token scales of the last pass fold into a[g]
    for (int g = 0; g < n; ++g) {
      const RowMoments row = WeightedRowMoments(tile.rows + static_cast<int64_t>(g) * stride,
                                                channel_weight, tile.head_dim);
      const float spread = SpreadF(row.mean, row.mean_square);
      token[g] = ClampF(spread, token[g] * 1e-3F, token[g] * 1e3F);
      token_weight[g] = inverse_g0 / token[g];
    }
  }
  return g0;
}

// One token of a V tile while it is quantised; y = X/C with zero padding.
struct ValueRow {
  const float* y;
  const float* weight;  // C^2, zero in the padding
  int head_dim;
  float top;   // Q
  float half;  // Q/2
};

KVARN_INLINE Vf ValueCode(const ValueRow& v, Vf y, float z, float inverse_a) {
  return RoundToCode((y - z) * inverse_a + v.half, v.top);
}

struct RowRange {
  float low;
  float high;
};
static RowRange ValueRange(const ValueRow& v) {
  float low = v.y[0];
  float high = v.y[0];
  Vf low_lanes = Splat(low);
  Vf high_lanes = Splat(high);
  int d = 0;
  for (; d + kWidth <= v.head_dim; d += kWidth) {
    low_lanes = Min(low_lanes, Load(v.y + d));
    high_lanes = Max(high_lanes, Load(v.y + d));
  }
  for (int i = 0; i < kWidth; ++i) {
    low = MinF(low, low_lanes[i]);
    high = MaxF(high, high_lanes[i]);
  }
  for (; d < v.head_dim; ++d) {
    low = MinF(low, v.y[d]);
    high = MaxF(high, v.y[d]);
  }
  return RowRange{low, high};
}

static float ValueError(const ValueRow& v, float z, float a) {
  const float inverse_a = ReciprocalF(a);
  LaneSum error = ZeroLanes();
  for (int d = 0; d < v.head_dim; d += 32) {
    for (int i = 0; i < 32 / kWidth; ++i) {
      const int at = d + i * kWidth;
      const Vf y = Load(v.y + at);
      const Vf e = (y - z) - (ValueCode(v, y, z, inverse_a) - v.half) * a;
      error.part[i] = error.part[i] + e * e * Load(v.weight + at);
    }
  }
  return Join(error);
}

struct StepCentre {
  float step;
  float centre;
};

static StepCentre ValueStep(const ValueRow& v, int bits) {
  const RowRange range = ValueRange(v);
  const float width = range.high - range.low;
  const float middle = 0.5F * (range.low + range.high);
  if (bits == 2) {
    LaneSum first = ZeroLanes();
    LaneSum second = ZeroLanes();
    for (int d = 0; d < v.head_dim; d += 32) {
      for (int i = 0; i < 32 / kWidth; ++i) {
        const Vf y = Load(v.y + d + i * kWidth);
        first.part[i] = first.part[i] + y;
        second.part[i] = second.part[i] + y * y;
      }
    }
    const float count = static_cast<float>(v.head_dim);
    const float mean = Join(first) / count;
    const float variance = MaxF(Join(second) / count - mean * mean, 0.0F);
    const float gaussian = kGaussianStep4 * SqrtF(variance);
    const StepCentre wide = {width / 3.0F, middle};
    const StepCentre narrow = {gaussian, mean};
    const float wide_error = ValueError(v, wide.centre, wide.step);
    return wide_error < ValueError(v, narrow.centre, narrow.step) ? wide : narrow;
  }
  const FractionGrid& grid = Fractions(bits);
  const float widest = width / v.top;
  StepCentre best = {widest * grid.value[0], middle};
  if (grid.count == 1) return best;
  float best_error = ValueError(v, middle, best.step);
  for (int i = 1; i < grid.count; ++i) {
    const float a = widest * grid.value[i];
    const float error = ValueError(v, middle, a);
    if (error < best_error) {
      best.step = a;
      best_error = error;
    }
  }
  return best;
}

// Least squares of y on (c - Q/2) with weights C^2; kept only where it makes sense.
static void ValueRefit(const ValueRow& v, StepCentre* fit) {
  const float inverse_a = ReciprocalF(fit->step);
  LaneSum w = ZeroLanes();
  LaneSum wb = ZeroLanes();
  LaneSum wbb = ZeroLanes();
  LaneSum we = ZeroLanes();
  LaneSum web = ZeroLanes();
  for (int d = 0; d < v.head_dim; d += 32) {
    for (int i = 0; i < 32 / kWidth; ++i) {
      const int at = d + i * kWidth;
      const Vf y = Load(v.y + at);
      const Vf weight = Load(v.weight + at);
      const Vf b = ValueCode(v, y, fit->centre, inverse_a) - v.half;
      const Vf e = y - fit->centre;
      w.part[i] = w.part[i] + weight;
      wb.part[i] = wb.part[i] + weight * b;
      wbb.part[i] = wbb.part[i] + weight * b * b;
      we.part[i] = we.part[i] + weight * e;
      web.part[i] = web.part[i] + weight * e * b;
    }
  }
  const float total = Join(w);
  if (!(total > 0.0F)) return;
  const float mean_b = Join(wb) / total;
  const float mean_e = Join(we) / total;
  const float covariance = Join(web) / total - mean_e * mean_b;
  const float variance = Join(wbb) / total - mean_b * mean_b;
  if (!(covariance > 0.0F) || !(variance > 0.0F)) return;
  fit->step = covariance / variance;
  fit->centre = fit->centre + (mean_e - fit->step * mean_b);
}

// Final codes of one token and the gain of its step. E = X - z C, P = (c - Q/2) a C.
static float ValueGain(const ValueRow& v, const StepCentre& fit, float* codes) {
  const float inverse_a = ReciprocalF(fit.step);
  LaneSum energy = ZeroLanes();
  LaneSum projection = ZeroLanes();
  for (int d = 0; d < RowStride(v.head_dim); d += 32) {
    for (int i = 0; i < 32 / kWidth; ++i) {
      const int at = d + i * kWidth;
      const Vf y = Load(v.y + at);
      const Vf code = ValueCode(v, y, fit.centre, inverse_a);
      Store(codes + at, code);
      const Vf e = y - fit.centre;
      const Vf we = Load(v.weight + at) * e;
      energy.part[i] = energy.part[i] + we * e;
      projection.part[i] = projection.part[i] + we * ((code - v.half) * fit.step);
    }
  }
  return GainF(Join(energy), Join(projection));
}

static void EncodeValue(EncodeTile* tile) {
  const int n = tile->n_rows;
  const int stride = RowStride(tile->head_dim);
  alignas(64) float channel[kMaxHeadDim + kRowAlign];
  alignas(64) float inverse[kMaxHeadDim + kRowAlign];
  alignas(64) float weight[kMaxHeadDim + kRowAlign];
  alignas(64) float y[kMaxHeadDim + kRowAlign];

  const float g0 = ValueChannelScales(*tile, stride, channel);
  const PowerSplit split = SplitScale(g0);
  for (int d = 0; d < stride; ++d) {
    inverse[d] = 0.0F;
    weight[d] = 0.0F;
    if (d >= tile->head_dim) continue;
    tile->other[d] = StoreScale(channel[d] * g0 * split.down, &tile->saturated);
    const float c = HalfToFloat(tile->other[d]);
    inverse[d] = ReciprocalF(c);
    weight[d] = c * c;
  }

  const float top = static_cast<float>((1 << tile->bits) - 1);
  const ValueRow v = {y, weight, tile->head_dim, top, top * 0.5F};
  for (int g = 0; g < n; ++g) {
    const float* x = tile->rows + static_cast<int64_t>(g) * stride;
    for (int d = 0; d < stride; d += kWidth) Store(y + d, Load(x + d) * Load(inverse + d));
    StepCentre fit = ValueStep(v, tile->bits);
    ValueRefit(v, &fit);
    const float gain = ValueGain(v, fit, tile->scratch + static_cast<int64_t>(g) * stride);
    tile->scale[g] = StoreScale(fit.step * gain, &tile->saturated);
    const float step = HalfToFloat(tile->scale[g]);
    tile->zero[g] = StoreScale(fit.centre - step * v.half, &tile->saturated);
  }
  StoreCodes(tile->scratch, stride, tile);
}
