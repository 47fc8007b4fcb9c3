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

// Where row r's parts of the weights go.
struct WeightRow {
  int8_t* high;
  int8_t* low;
};
KVARN_INLINE WeightRow WeightsOf(const AttendState& s, const RecordProduct& product, int r) {
  int8_t* high = product.weights + static_cast<int64_t>(2 * r) * s.weight_stride;
  return WeightRow{high, high + s.weight_stride};
}

// Asks for a record from `begin` on: 0, or where its scales begin, which follow the codes. `record`
// may be null.
KVARN_INLINE void Prefetch(const uint8_t* record, const RecordLayout& layout, size_t begin) {
  if (record == nullptr) return;
  for (size_t at = begin; at < layout.bytes; at += 64) __builtin_prefetch(record + at);
}

// The product, whose weights are used up. `add` adds it to what is there. The codes of `next`,
// which may be null, are asked for meanwhile: planes of many tokens are not in the caches.
static void DotRecord(const AttendState& s, RecordProduct* product, const RecordLayout& layout,
                      int bits, const float* gain, bool add, const uint8_t* next) {
  CodeDotArgs args;
  args.codes = product->record + layout.codes;
  args.strips = (layout.lanes + kLanesPerStrip - 1) / kLanesPerStrip;
  args.contraction = layout.contraction;
  args.weights = product->weights;
  args.weight_stride = s.weight_stride;
  args.n_rows = s.rows;
  args.rows = product->rows;
  args.gain = gain;
  args.add = add;
  args.next = (next != nullptr ? next : product->record) + layout.codes;
  product->record = nullptr;
  if (bits == 8) return CodeDot<8>(args);
  if (bits == 4) return CodeDot<4>(args);
  CodeDot<2>(args);
  if (bits == 2) return;
  const int units = (layout.contraction + 15) / 16;
  const int64_t plane = static_cast<int64_t>(args.strips) * units * kUnitBytes;
  args.codes += plane;
  args.next += plane;
  args.add = true;
  for (int r = 0; r < s.rows; ++r) {
    product->rows[r].scale *= 4.0F;  // the third bit
    product->rows[r].inside = 0.0F;
  }
  CodeDot<1>(args);
}

// Rows whose weights are made side by side: what a row waits for (sums over lanes, a division) is
// time for the others.
static const int kFoldRows = 4;

// Makes the weights of a K record: Q', with the offsets of the scores.
static void FoldKeys(AttendState* s, const uint8_t* record) {
  const RecordLayout& layout = s->shape->key_layout;
  const bool balanced = s->shape->key.mode == KVARN_BALANCED;
  RotateQueries(s, record, layout);
  // Zero beyond the head dim, as the queries are.
  alignas(64) float a[kMaxHeadDim + kRowAlign];
  alignas(64) float z[kMaxHeadDim + kRowAlign];
  alignas(64) Vf folded[kFoldRows][(kMaxHeadDim + 64) / kWidth];
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.scale), a, s->key_dim);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.zero), z, s->key_dim);
  for (int d = s->key_dim; d < s->key_stride; ++d) a[d] = z[d] = 0.0F;
  const int vectors = s->key_stride / kWidth;
  const int blocks = (vectors + 3) / 4;
  const float half = static_cast<float>((1 << s->shape->key.bits) - 1) * 0.5F;
  for (int first = 0; first < s->rows; first += kFoldRows) {
    const int count = s->rows - first < kFoldRows ? s->rows - first : kFoldRows;
    Vf top[kFoldRows];
    Vf zero[kFoldRows];
    for (int k = 0; k < count; ++k) {
      const float* q = s->rotated + static_cast<int64_t>(first + k) * s->key_stride;
      top[k] = zero[k] = Vf{};
      for (int i = 0; i < vectors; ++i) {
        const Vf at = Load(q + i * kWidth);
        const Vf weight = at * Load(a + i * kWidth);
        folded[k][i] = weight;
        top[k] = Max(top[k], Abs(weight));
        zero[k] = Fma(at, Load(z + i * kWidth), zero[k]);
      }
      for (int i = vectors; i < 4 * blocks; ++i) folded[k][i] = Vf{};
    }
    WeightScale scale[kFoldRows];
    for (int k = 0; k < count; ++k) scale[k] = ScaleOf(MaxLanes(top[k]));
    for (int k = 0; k < count; ++k) {
      const Vf inverse = Fill(scale[k].inverse);
      const WeightRow to = WeightsOf(*s, s->keys, first + k);
      Vi sum = {};
      for (int i = 0; i < blocks; ++i) {
        sum = sum + QuantiseBlock(folded[k] + 4 * i, inverse, to.high + i * kWeightBlock,
                                  to.low + i * kWeightBlock);
      }
      // Sums of integers: exact below 2^24.
      const float middle = -half * SumLanes(__builtin_convertvector(sum, Vf)) * scale[k].scale;
      const float offset = SumLanes(zero[k]);
      s->keys.rows[first + k] =
          DotRow{s->score + static_cast<int64_t>(first + k) * kMaxGroup, scale[k].scale,
                 balanced ? middle : offset, balanced ? offset : 0.0F};
    }
  }
  s->keys.record = record;
}

// Scores of a sealed K tile for `rows`: t (X0 + sum Q' code) + Cz. `next`, or null, is the record
// after it.
static void ScoreRecord(AttendState* s, const RowSet& rows, const uint8_t* record,
                        const uint8_t* next) {
  const RecordLayout& layout = s->shape->key_layout;
  if (s->keys.record != record) FoldKeys(s, record);
  Prefetch(next, layout, layout.scale);
  for (int r = 0; r < s->rows; ++r) {
    if (!rows.has[r]) s->keys.rows[r].out = s->unused;
  }
  alignas(64) float t[kMaxGroup];
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.other), t, s->shape->key.group);
  DotRecord(*s, &s->keys, layout, s->shape->key.bits, t, false, next);
}

// Begins the weights of a V record: loads what meets the probabilities.
static void BeginWeights(AttendState* s, const uint8_t* record) {
  s->values.record = record;
  const RecordLayout& layout = s->shape->value_layout;
  const int group = s->shape->value.group;
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.scale), s->value_scale, group);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.zero), s->value_zero, group);
}

// What the weights of a row need to know of all its lanes.
struct RowSums {
  Vf top;   // magnitude of P'
  Vf zero;  // p z
  Vf sum;   // p
};

// p a of row r, in place. `finish` makes four vectors of probabilities of what is in `score`.
template <int kGroup, typename Finish>
KVARN_INLINE RowSums FoldRow(const AttendState& s, int r, const Finish& finish) {
  float* p = s.score + static_cast<int64_t>(r) * kMaxGroup;
  RowSums sums = {};
#pragma GCC unroll 2
  for (int g = 0; g < kGroup; g += 4 * kWidth) {
    Vf x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) x[i] = Load(p + g + i * kWidth);
    finish(x);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Vf weight = x[i] * Load(s.value_scale + g + i * kWidth);
      Store(p + g + i * kWidth, weight);
      sums.sum = sums.sum + x[i];
      sums.top = Max(sums.top, Abs(weight));
      sums.zero = Fma(x[i], Load(s.value_zero + g + i * kWidth), sums.zero);
    }
  }
  return sums;
}

// Makes the weights of rows [first, first + count) of what FoldRow left in `score`.
template <int kGroup>
KVARN_INLINE void QuantiseRows(AttendState* s, int first, int count, const RowSums* sums) {
  WeightScale scale[kFoldRows];
  for (int k = 0; k < count; ++k) scale[k] = ScaleOf(MaxLanes(sums[k].top));
  for (int k = 0; k < count; ++k) {
    const int r = first + k;
    const float* folded = s->score + static_cast<int64_t>(r) * kMaxGroup;
    const Vf inverse = Fill(scale[k].inverse);
    const WeightRow to = WeightsOf(*s, s->values, r);
#pragma GCC unroll 2
    for (int g = 0; g < kGroup; g += kWeightBlock) {
      Vf x[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) x[i] = Load(folded + g + i * kWidth);
      QuantiseBlock(x, inverse, to.high + g, to.low + g);
    }
    s->values.rows[r] = DotRow{s->task->partial.rotated + static_cast<int64_t>(r) * s->value_stride,
                               scale[k].scale, SumLanes(sums[k].zero), 0.0F};
  }
}

// Makes the weights of all rows for a V record and returns the sums of what `finish` made of
// `score` in sum[r].
template <int kGroup, typename Finish>
KVARN_INLINE void FoldRows(AttendState* s, const Finish& finish, float* sum) {
  for (int first = 0; first < s->rows; first += kFoldRows) {
    const int count = s->rows - first < kFoldRows ? s->rows - first : kFoldRows;
    RowSums sums[kFoldRows];
    for (int k = 0; k < count; ++k) {
      const int r = first + k;
      sums[k] = FoldRow<kGroup>(*s, r, [&](Vf* x) { finish(r, x); });
    }
    QuantiseRows<kGroup>(s, first, count, sums);
    for (int k = 0; k < count; ++k) sum[first + k] = SumLanes(sums[k].sum);
  }
}

// O += C (sum P' code + Pz) for a sealed V tile whose weights are made. `next`, or null, is the
// record after it.
static void AccumulateWeights(AttendState* s, const uint8_t* next) {
  const RecordLayout& layout = s->shape->value_layout;
  const uint8_t* record = s->values.record;
  alignas(64) float c[kMaxHeadDim + kRowAlign];
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.other), c, s->value_dim);
  for (int d = s->value_dim; d < RowStride(s->value_dim); ++d) c[d] = 0.0F;
  DotRecord(*s, &s->values, layout, s->shape->value.bits, c, true, next);
}

// The same from the probabilities in `score`, which are used up.
template <int kGroup>
static void AccumulateRecordOf(AttendState* s, const uint8_t* record) {
  BeginWeights(s, record);
  float sum[kQueryBlock];
  FoldRows<kGroup>(s, [](int, Vf*) {}, sum);
  AccumulateWeights(s, nullptr);
}
static void AccumulateRecord(AttendState* s, const uint8_t* record) {
  return s->shape->value.group == 64 ? AccumulateRecordOf<64>(s, record)
                                     : AccumulateRecordOf<128>(s, record);
}
