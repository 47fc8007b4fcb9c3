// SPDX-License-Identifier: Apache-2.0
//
// Attention against a sealed tile. The inner products see raw codes: a, t, C fold into the weights
// and the epilogue (docs/architecture.md section 5). See vec-inl.h on inclusion.

// Queries in the frame of a record: (query / s) H. Kept until a record has another s.
static void RotateQueries(AttendState* s, const uint8_t* record, const RecordLayout& layout) {
  const uint8_t* balance = record + layout.balance;
  if (s->rotated_valid &&
      (!layout.has_balance ||
       __builtin_memcmp(balance, s->balance, static_cast<size_t>(s->key_dim)) == 0)) {
    return;
  }
  __builtin_memcpy(s->rotated, s->query,
                   sizeof(float) * static_cast<size_t>(s->rows * s->key_stride));
  if (layout.has_balance) {
    __builtin_memcpy(s->balance, balance, static_cast<size_t>(s->key_dim));
    alignas(64) float inverse[kMaxHeadDim];
    for (int d = 0; d < s->key_dim; ++d)
      inverse[d] = BalanceScale(-static_cast<int>(s->balance[d]));
    for (int r = 0; r < s->rows; ++r) {
      float* q = s->rotated + static_cast<int64_t>(r) * s->key_stride;
      for (int d = 0; d < s->key_dim; ++d) q[d] = q[d] * inverse[d];
    }
  }
  Rotate(*s->shape->key_rotation, s->rotated, s->rows, s->key_stride, false);
  s->rotated_valid = true;
}

// Weights are made in blocks of this many; zeros fill up the last.
static const int kWeightBlock = 4 * kWidth;
static_assert(64 % kWeightBlock == 0);

// A row of weights as 15-bit integers w = 128 high + low, w * scale close to the input.
struct WeightScale {
  float inverse;  // of scale; 0 if all weights are next to nothing
  float scale;
};
// `largest` is the greatest magnitude of the weights.
KVARN_INLINE WeightScale ScaleOf(float largest) {
  return largest > 1e-30F ? WeightScale{16256.0F / largest, largest * (1.0F / 16256.0F)}
                          : WeightScale{0.0F, 0.0F};
}

// The block of weights at `weight`; returns the sums of its integers.
KVARN_INLINE Vi QuantiseBlock(const Vf* weight, Vf inverse, int8_t* high, int8_t* low) {
  Vi w[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) w[k] = RoundToInt(weight[k] * inverse);
  StoreParts(w, high, low);
  return (w[0] + w[1]) + (w[2] + w[3]);
}

// Products of the weights with the codes of a record, by `dots`; those of `add` add to what is
// there.
static void DotRecord(AttendState* s, const uint8_t* codes, int bits, const RecordLayout& layout,
                      const float* gain, bool add) {
  CodeDotArgs args;
  args.codes = codes;
  args.strips = (layout.lanes + kLanesPerStrip - 1) / kLanesPerStrip;
  args.contraction = layout.contraction;
  args.weights = s->weights;
  args.weight_stride = s->weight_stride;
  args.n_rows = s->rows;
  args.rows = s->dots;
  args.gain = gain;
  args.add = add;
  if (bits == 8) return CodeDot<8>(args);
  if (bits == 4) return CodeDot<4>(args);
  CodeDot<2>(args);
  if (bits == 2) return;
  const int units = (layout.contraction + 15) / 16;
  args.codes = codes + static_cast<int64_t>(args.strips) * units * kUnitBytes;
  args.add = true;
  for (int r = 0; r < s->rows; ++r) {
    s->dots[r].scale *= 4.0F;  // the third bit
    s->dots[r].inside = 0.0F;
  }
  CodeDot<1>(args);
}

// Scores of a sealed K tile for `rows`: t (X0 + sum Q' code) + Cz.
static void ScoreRecord(AttendState* s, const RowSet& rows, const uint8_t* record) {
  const RecordLayout& layout = s->shape->key_layout;
  const int bits = s->shape->key.bits;
  const bool balanced = s->shape->key.mode == KVARN_BALANCED;
  RotateQueries(s, record, layout);
  // Zero beyond the head dim, as the queries are.
  alignas(64) float a[kMaxHeadDim + kRowAlign];
  alignas(64) float z[kMaxHeadDim + kRowAlign];
  alignas(64) float t[kMaxGroup];
  alignas(64) Vf folded[(kMaxHeadDim + 64) / kWidth];
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.scale), a, s->key_dim);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.zero), z, s->key_dim);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.other), t, s->shape->key.group);
  for (int d = s->key_dim; d < s->key_stride; ++d) a[d] = z[d] = 0.0F;
  const int vectors = s->key_stride / kWidth;
  const int blocks = (vectors + 3) / 4;
  for (int i = vectors; i < 4 * blocks; ++i) folded[i] = Vf{};
  const float half = static_cast<float>((1 << bits) - 1) * 0.5F;
  for (int r = 0; r < s->rows; ++r) {
    const float* q = s->rotated + static_cast<int64_t>(r) * s->key_stride;
    Vf zero = {};
    Vf top = {};
    for (int i = 0; i < vectors; ++i) {
      const Vf at = Load(q + i * kWidth);
      folded[i] = at * Load(a + i * kWidth);
      top = Max(top, Abs(folded[i]));
      zero = Fma(at, Load(z + i * kWidth), zero);
    }
    const WeightScale scale = ScaleOf(MaxLanes(top));
    const Vf inverse = Fill(scale.inverse);
    int8_t* high = s->weights + static_cast<int64_t>(2 * r) * s->weight_stride;
    int8_t* low = high + s->weight_stride;
    Vi sum = {};
    for (int i = 0; i < blocks; ++i) {
      sum = sum +
            QuantiseBlock(folded + 4 * i, inverse, high + i * kWeightBlock, low + i * kWeightBlock);
    }
    // Sums of integers: exact below 2^24.
    const float middle = -half * SumLanes(__builtin_convertvector(sum, Vf)) * scale.scale;
    const float offset = SumLanes(zero);
    float* out = rows.has[r] ? s->score + static_cast<int64_t>(r) * kMaxGroup : s->unused;
    s->dots[r] = DotRow{out, scale.scale, balanced ? middle : offset, balanced ? offset : 0.0F};
  }
  DotRecord(s, record + layout.codes, bits, layout, t, false);
}

// What of a V record meets the probabilities.
static void LoadValueScales(AttendState* s, const uint8_t* record) {
  const RecordLayout& layout = s->shape->value_layout;
  const int group = s->shape->value.group;
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.scale), s->value_scale, group);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.zero), s->value_zero, group);
}

// Makes the weights of row r from probabilities(i), the i-th vector of them, which are relative to
// the reference of the row. Returns their sum.
template <int kGroup, typename Probabilities>
KVARN_INLINE float FoldRow(AttendState* s, int r, const Probabilities& probabilities) {
  constexpr int kVectors = kGroup / kWidth;
  Vf folded[kVectors];
  Vf sum = {};
  Vf zero = {};
  Vf top = {};
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const Vf p = probabilities(i);
    folded[i] = p * Load(s->value_scale + i * kWidth);
    sum = sum + p;
    top = Max(top, Abs(folded[i]));
    zero = Fma(p, Load(s->value_zero + i * kWidth), zero);
  }
  const WeightScale scale = ScaleOf(MaxLanes(top));
  const Vf inverse = Fill(scale.inverse);
  int8_t* high = s->weights + static_cast<int64_t>(2 * r) * s->weight_stride;
  int8_t* low = high + s->weight_stride;
#pragma GCC unroll 2
  for (int i = 0; i < kGroup / kWeightBlock; ++i) {
    QuantiseBlock(folded + 4 * i, inverse, high + i * kWeightBlock, low + i * kWeightBlock);
  }
  s->dots[r] = DotRow{s->task->partial.rotated + static_cast<int64_t>(r) * s->value_stride,
                      scale.scale, SumLanes(zero), 0.0F};
  return SumLanes(sum);
}

// The same of a row without probabilities.
static void FoldNothing(AttendState* s, int r) {
  int8_t* high = s->weights + static_cast<int64_t>(2 * r) * s->weight_stride;
  __builtin_memset(high, 0, 2 * static_cast<size_t>(s->weight_stride));
  s->dots[r] = DotRow{s->task->partial.rotated + static_cast<int64_t>(r) * s->value_stride, 0.0F,
                      0.0F, 0.0F};
}

// O += C (sum P' code + Pz) for a sealed V tile whose weights are made.
static void AccumulateWeights(AttendState* s, const uint8_t* record) {
  const RecordLayout& layout = s->shape->value_layout;
  alignas(64) float c[kMaxHeadDim + kRowAlign];
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.other), c, s->value_dim);
  for (int d = s->value_dim; d < RowStride(s->value_dim); ++d) c[d] = 0.0F;
  DotRecord(s, record + layout.codes, s->shape->value.bits, layout, c, true);
}

// The same from the probabilities in `score`; rows without any get nothing.
template <int kGroup>
static void AccumulateRecordOf(AttendState* s, const uint8_t* record) {
  LoadValueScales(s, record);
  for (int r = 0; r < s->rows; ++r) {
    const float* p = s->score + static_cast<int64_t>(r) * kMaxGroup;
    FoldRow<kGroup>(s, r, [p](int i) { return Load(p + i * kWidth); });
  }
  AccumulateWeights(s, record);
}
static void AccumulateRecord(AttendState* s, const uint8_t* record) {
  return s->shape->value.group == 64 ? AccumulateRecordOf<64>(s, record)
                                     : AccumulateRecordOf<128>(s, record);
}
