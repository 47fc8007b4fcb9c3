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

// Asks for a record from `begin` on: 0, or where its scales begin, which follow the codes. `record`
// may be null. Into the second-level cache, as products do with codes: on Zen 4 a tenth to a
// quarter faster than into the first.
KVARN_INLINE void Prefetch(const uint8_t* record, const RecordLayout& layout, size_t begin) {
  if (record == nullptr) return;
  for (size_t at = begin; at < layout.bytes; at += 64) __builtin_prefetch(record + at, 0, 2);
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
