// SPDX-License-Identifier: Apache-2.0
//
// Step, zero-point and codes of the channels of a K tile with given token scales, docs/format.md
// section 5 from "for each channel" on. kWidth channels go together, one a lane. See vec-inl.h on
// inclusion.

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
