// SPDX-License-Identifier: Apache-2.0
//
// The V encoder, docs/format.md section 6: V^[g,d] = (c a[g] + z'[g]) C[d]. See vec-inl.h.

// Spread of one axis: the standard deviation, but not below a quarter of the rms, so that a
// constant row or channel keeps a sensible scale.
KVARN_INLINE Vf ValueSpread(Vf mean, Vf mean_square, Vf before) {
  const Vf variance = Max(mean_square - mean * mean, Splat(0.0F));
  const Vf spread = Max(Sqrt(variance), Sqrt(mean_square) * 0.25F);
  return Min(Max(spread, before * 1e-3F), before * 1e3F);
}

// Channel scales C [stride], times the tile's scale g0, which is returned.
static float ValueChannelScales(const EncodeTile& tile, int stride, float* channel) {
  const int n = tile.n_rows;
  alignas(64) float token_weight[kMaxGroup];
  alignas(64) float channel_weight[kMaxHeadDim + kRowAlign];
  alignas(64) float mean[kMaxGroup] = {};
  alignas(64) float mean_square[kMaxGroup] = {};
  for (int g = 0; g < n; g += 4) {
    const FourRows row = RowsAt(g, n, stride);
    V4 total;
    SumFourRows<1>(
        tile.head_dim,
        [&](int r, int d, Vf* value) {
          const Vf x = Load(tile.rows + row.at[r] + d);
          *value = x * x;
        },
        &total);
    Store4(mean_square + g, total);
  }
  const float g0 = TileScale(mean_square, n, tile.head_dim);
  const float inverse_g0 = 1.0F / g0;
  for (int g = 0; g < kMaxGroup; ++g) token_weight[g] = inverse_g0;
  for (int d = 0; d < stride; ++d) channel[d] = 1.0F;
  for (int pass = 0; pass < 2; ++pass) {
    for (int d = 0; d < stride; d += kWidth) {
      const ColumnMoments column =
          WeightedColumnMoments<false>(tile.rows + d, stride, Vf{}, token_weight, n);
      const Vf c = ValueSpread(column.mean, column.mean_square, Load(channel + d));
      Store(channel + d, c);
      Store(channel_weight + d, inverse_g0 / c);
    }
    if (pass == 1) break;  // the token scales of the last pass fold into a[g]
    RowMoments<false>(tile.rows, stride, n, tile.head_dim, nullptr, channel_weight, mean,
                      mean_square);
    for (int g = 0; g < kMaxGroup; g += kWidth) {
      const Vf spread = ValueSpread(Load(mean + g), Load(mean_square + g), Splat(1.0F));
      Store(token_weight + g, inverse_g0 / spread);
    }
  }
  return g0;
}

// Four tokens of a V tile while they are quantised; a lane of a V4 is a token.
struct ValueRows {
  const float* y[4];    // X/C with zero padding
  const float* weight;  // C^2, zero in the padding
  float total_weight;
  int head_dim;
  float top;   // Q
  float half;  // Q/2
};

struct StepCentre {
  V4 step;
  V4 centre;
};

struct RowRange {
  V4 low;
  V4 high;
};
KVARN_INLINE RowRange ValueRange(const ValueRows& v) {
  V4 low[4];
  V4 high[4];
  for (int r = 0; r < 4; ++r) {
    Vf low_lanes[kLaneParts];
    Vf high_lanes[kLaneParts];
    const float* y = v.y[r];
#pragma GCC unroll 8
    for (int i = 0; i < kLaneParts; ++i) low_lanes[i] = high_lanes[i] = Splat(y[0]);
    int d = 0;
    for (; d + 32 <= v.head_dim; d += 32) {
#pragma GCC unroll 8
      for (int i = 0; i < kLaneParts; ++i) {
        low_lanes[i] = Min(low_lanes[i], Load(y + d + i * kWidth));
        high_lanes[i] = Max(high_lanes[i], Load(y + d + i * kWidth));
      }
    }
    float least = y[0];
    float most = y[0];
    for (; d < v.head_dim; ++d) {  // not the padding
      least = MinF(least, y[d]);
      most = MaxF(most, y[d]);
    }
    low[r] = Lesser{}(FoldLanes(low_lanes, Lesser{}), Splat4(least));
    high[r] = Greater{}(FoldLanes(high_lanes, Greater{}), Splat4(most));
  }
  return RowRange{JoinFour(low, Lesser{}), JoinFour(high, Greater{})};
}

KVARN_INLINE Vf ValueCode(const ValueRows& v, Vf e, float inverse_a) {
  return RoundToCode(e * inverse_a + v.half, v.top);
}

// Squared errors of kCount steps, all with the same centres.
template <int kCount>
KVARN_INLINE void ValueErrors(const ValueRows& v, V4 centre, const V4* step, V4* error) {
  V4 inverse[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) inverse[i] = Reciprocal(step[i]);
  SumFourRows<kCount>(
      v.head_dim,
      [&](int r, int d, Vf* value) {
        const Vf y = Load(v.y[r] + d) - centre[r];
        const Vf weight = Load(v.weight + d);
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) {
          const Vf e = y - (ValueCode(v, y, inverse[i][r]) - v.half) * step[i][r];
          value[i] = e * e * weight;
        }
      },
      error);
}

// Two bits: a Gaussian step round the mean, or the range where its error is less.
KVARN_INLINE StepCentre ValueStep2(const ValueRows& v, const RowRange& range) {
  V4 moment[2];
  SumFourRows<2>(
      v.head_dim,
      [&](int r, int d, Vf* value) {
        const Vf y = Load(v.y[r] + d);
        value[0] = y;
        value[1] = y * y;
      },
      moment);
  const float count = static_cast<float>(v.head_dim);
  const V4 mean = moment[0] / count;
  const V4 variance = Greater{}(moment[1] / count - mean * mean, V4{});
  V4 deviation = variance;
  for (int r = 0; r < 4; ++r) deviation[r] = SqrtF(variance[r]);
  const StepCentre narrow = {kGaussianStep4 * deviation, mean};
  const StepCentre wide = {(range.high - range.low) / 3.0F, 0.5F * (range.low + range.high)};
  V4 narrow_error;
  V4 wide_error;
  ValueErrors<1>(v, narrow.centre, &narrow.step, &narrow_error);
  ValueErrors<1>(v, wide.centre, &wide.step, &wide_error);
  const I4 better = wide_error < narrow_error;
  return StepCentre{better ? wide.step : narrow.step, better ? wide.centre : narrow.centre};
}

// Three bits and more: the best fraction of the range.
KVARN_INLINE StepCentre ValueStepGrid(const ValueRows& v, const RowRange& range,
                                      const FractionGrid& grid) {
  const V4 widest = (range.high - range.low) / v.top;
  const V4 middle = 0.5F * (range.low + range.high);
  StepCentre best = {widest * grid.value[0], middle};
  if (grid.count == 1) return best;
  V4 step[kFractions];
  V4 error[kFractions];
#pragma GCC unroll 8
  for (int i = 0; i < kFractions; ++i) step[i] = widest * grid.value[i];
  for (int i = 0; i < kFractions; i += kStepsAtOnce) {
    ValueErrors<kStepsAtOnce>(v, middle, step + i, error + i);
  }
  V4 best_error = error[0];
#pragma GCC unroll 8
  for (int i = 1; i < kFractions; ++i) {
    const I4 better = error[i] < best_error;
    best.step = better ? step[i] : best.step;
    best_error = better ? error[i] : best_error;
  }
  return best;
}

// Least squares of y on (c - Q/2) with weights C^2; kept only where it makes sense.
KVARN_INLINE StepCentre ValueRefit(const ValueRows& v, const StepCentre& fit) {
  const V4 inverse_a = Reciprocal(fit.step);
  V4 mean[4];  // of B, B^2, E, E B
  SumFourRows<4>(
      v.head_dim,
      [&](int r, int d, Vf* value) {
        const Vf weight = Load(v.weight + d);
        const Vf e = Load(v.y[r] + d) - fit.centre[r];
        const Vf b = ValueCode(v, e, inverse_a[r]) - v.half;
        value[0] = weight * b;
        value[1] = value[0] * b;
        value[2] = weight * e;
        value[3] = value[2] * b;
      },
      mean);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) mean[i] = mean[i] / v.total_weight;
  const V4 covariance = mean[3] - mean[2] * mean[0];
  const V4 variance = mean[1] - mean[0] * mean[0];
  const V4 slope = covariance / variance;
  const V4 centre = fit.centre + (mean[2] - slope * mean[0]);
  const I4 fits = (covariance > 0.0F) & (variance > 0.0F) & (Splat4(v.total_weight) > 0.0F);
  return StepCentre{fits ? slope : fit.step, fits ? centre : fit.centre};
}

// Final codes, rows `stride` apart, and the gain of the steps. E = X - z C, P = (c - Q/2) a C.
KVARN_INLINE V4 ValueCodes(const ValueRows& v, const StepCentre& fit, int stride, uint8_t* codes) {
  const V4 inverse_a = Reciprocal(fit.step);
  V4 total[2];
  SumFourRows<2>(
      v.head_dim,
      [&](int r, int d, Vf* value) {
        const Vf e = Load(v.y[r] + d) - fit.centre[r];
        const Vf code = ValueCode(v, e, inverse_a[r]);
        StoreBytes(codes + r * stride + d, __builtin_convertvector(code, Vi));
        const Vf we = Load(v.weight + d) * e;
        value[0] = we * e;
        value[1] = we * ((code - v.half) * fit.step[r]);
      },
      total);
  return Gain(total[0], total[1]);
}

static void EncodeValue(EncodeTile* tile) {
  const int n = tile->n_rows;
  const int dim = tile->head_dim;
  const int stride = RowStride(dim);
  alignas(64) float channel[kMaxHeadDim + kRowAlign];
  alignas(64) float inverse[kMaxHeadDim + kRowAlign];
  alignas(64) float weight[kMaxHeadDim + kRowAlign];
  alignas(64) uint8_t padded_codes[4 * (kMaxHeadDim + kRowAlign)];
  alignas(64) float step[kMaxGroup];
  alignas(64) float centre[kMaxGroup];

  const float g0 = ValueChannelScales(*tile, stride, channel);
  const PowerSplit split = SplitScale(g0);
  for (int d = 0; d < stride; ++d) channel[d] = channel[d] * g0 * split.down;
  StoreScales(channel, dim, tile->other, &tile->saturated);
  ToFloat(tile->other, channel, dim);
  for (int d = dim; d < stride; ++d) channel[d] = 0.0F;
  float partial[32] = {};
  for (int d = 0; d < stride; d += kWidth) {
    const Vf c = Load(channel + d);
    Store(inverse + d, Reciprocal(c));
    Store(weight + d, c * c);
    Store(partial + d % 32, Load(partial + d % 32) + c * c);
  }
  for (int half = 16; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) partial[i] = partial[i] + partial[i + half];
  }

  ValueRows v;
  v.weight = weight;
  v.total_weight = partial[0];
  v.head_dim = dim;
  v.top = static_cast<float>((1 << tile->bits) - 1);
  v.half = v.top * 0.5F;
  for (int g = 0; g < n; g += 4) {
    const FourRows row = RowsAt(g, n, stride);
    for (int r = 0; r < 4; ++r) {
      float* y = tile->scratch + row.at[r];
      for (int d = 0; d < stride; d += 32) {
#pragma GCC unroll 8
        for (int i = d; i < d + 32; i += kWidth) {
          Store(y + i, Load(tile->rows + row.at[r] + i) * Load(inverse + i));
        }
      }
      v.y[r] = y;
    }
    const RowRange range = ValueRange(v);
    const StepCentre first =
        tile->bits == 2 ? ValueStep2(v, range) : ValueStepGrid(v, range, Fractions(tile->bits));
    const StepCentre fit = ValueRefit(v, first);
    // Codes go to their place unless whole vectors, or four rows, would reach beyond it.
    uint8_t* place = tile->codes + static_cast<int64_t>(g) * dim;
    uint8_t* codes = stride == dim && g + 4 <= n ? place : padded_codes;
    Store4(step + g, fit.step * ValueCodes(v, fit, stride, codes));
    Store4(centre + g, fit.centre);
    for (int r = 0; r < 4 && g + r < n && codes == padded_codes; ++r) {
      __builtin_memcpy(place + r * dim, codes + r * stride, static_cast<size_t>(dim));
    }
  }
  StoreScales(step, n, tile->scale, &tile->saturated);
  ToFloat(tile->scale, step, n);
  for (int g = 0; g < n; ++g) centre[g] = centre[g] - step[g] * v.half;
  StoreScales(centre, n, tile->zero, &tile->saturated);
}
