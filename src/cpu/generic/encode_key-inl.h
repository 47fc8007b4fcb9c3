// SPDX-License-Identifier: Apache-2.0
//
// The balanced K encoder, docs/format.md section 5: K^[d,g] = (c - Q/2) a[d] t[g] + z[d].
// Rows are tokens in memory; the statistics of a channel run down a column, see
// encode_key_column-inl.h. See vec-inl.h on inclusion.

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
