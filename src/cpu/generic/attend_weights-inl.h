// SPDX-License-Identifier: Apache-2.0
//
// Weights of the products with records: 15-bit integers made of fp32, and those of V made of
// probabilities (docs/architecture.md section 5). See vec-inl.h on inclusion.

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

// Rows whose weights are made side by side: what a row waits for (sums over lanes, a division) is
// time for the others.
static const int kFoldRows = 4;

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
