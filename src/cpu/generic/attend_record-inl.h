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

// A row of weights as 15-bit integers w = 128 high + low, w * scale close to the input.
struct WeightScale {
  float scale;
  float sum;  // of w, exact below 2^24
};
// `count` is a multiple of kWidth.
static WeightScale QuantiseWeights(const float* weight, int count, int8_t* high, int8_t* low) {
  Vf top = Splat(0.0F);
  for (int i = 0; i < count; i += kWidth) top = Max(top, Abs(Load(weight + i)));
  const float largest = MaxLanes(top);
  if (!(largest > 1e-30F)) {
    __builtin_memset(high, 0, static_cast<size_t>(count));
    __builtin_memset(low, 0, static_cast<size_t>(count));
    return WeightScale{0.0F, 0.0F};
  }
  const float inverse = 16256.0F / largest;
  Vf sum = Splat(0.0F);
  for (int i = 0; i < count; i += kWidth) {
    const Vf rounded = Round(Load(weight + i) * inverse);
    const Vi w = __builtin_convertvector(rounded, Vi);
    const Vi upper = (w + 64) >> 7;
    Store(high + i, upper);
    Store(low + i, w - (upper << 7));
    sum = sum + rounded;
  }
  return WeightScale{largest / 16256.0F, SumLanes(sum)};
}

static void DotRecord(const AttendState& s, const uint8_t* codes, int bits,
                      const RecordLayout& layout) {
  CodeDotArgs args;
  args.codes = codes;
  args.strips = (layout.lanes + kLanesPerStrip - 1) / kLanesPerStrip;
  args.contraction = layout.contraction;
  args.weights = s.weights;
  args.weight_stride = s.weight_stride;
  args.rows = s.rows;
  args.out = s.product;
  args.out_stride = s.product_stride;
  args.multiplier = 1.0F;
  args.add = false;
  if (bits == 8) return CodeDot<8>(args);
  if (bits == 4) return CodeDot<4>(args);
  CodeDot<2>(args);
  if (bits == 2) return;
  const int units = (layout.contraction + 15) / 16;
  args.codes = codes + static_cast<int64_t>(args.strips) * units * kUnitBytes;
  args.multiplier = 4.0F;  // the third bit
  args.add = true;
  CodeDot<1>(args);
}

// Raw scores of a sealed K tile: t (X0 + sum Q' code) + Cz.
static void ScoreRecord(AttendState* s, const RowSet& rows, const uint8_t* record) {
  const RecordLayout& layout = s->shape->key_layout;
  const int bits = s->shape->key.bits;
  const bool balanced = s->shape->key.mode == KVARN_BALANCED;
  const int group = s->shape->key.group;
  RotateQueries(s, record, layout);
  // Zero beyond the head dim, as the queries are.
  alignas(64) float a[kMaxHeadDim + kRowAlign];
  alignas(64) float z[kMaxHeadDim + kRowAlign];
  alignas(64) float t[kMaxGroup];
  alignas(64) float folded[kMaxHeadDim + kRowAlign];
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.scale), a, s->key_dim);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.zero), z, s->key_dim);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.other), t, group);
  for (int d = s->key_dim; d < s->key_stride; ++d) a[d] = z[d] = 0.0F;
  const float half = static_cast<float>((1 << bits) - 1) * 0.5F;
  WeightScale scale[kQueryBlock];
  float offset[kQueryBlock];
  for (int r = 0; r < s->rows; ++r) {
    const float* q = s->rotated + static_cast<int64_t>(r) * s->key_stride;
    Vf zero = Splat(0.0F);
    for (int d = 0; d < s->key_stride; d += kWidth) {
      const Vf at = Load(q + d);
      Store(folded + d, at * Load(a + d));
      zero = zero + at * Load(z + d);
    }
    offset[r] = SumLanes(zero);
    int8_t* high = s->weights + static_cast<int64_t>(2 * r) * s->weight_stride;
    scale[r] = QuantiseWeights(folded, s->key_stride, high, high + s->weight_stride);
  }
  DotRecord(*s, record + layout.codes, bits, layout);
  for (int r = 0; r < s->rows; ++r) {
    if (!rows.has[r]) continue;
    const float* dot = s->product + static_cast<int64_t>(r) * s->product_stride;
    float* out = s->score + static_cast<int64_t>(r) * kMaxGroup;
    const float inside = balanced ? -half * scale[r].sum * scale[r].scale : offset[r];
    const float outside = balanced ? offset[r] : 0.0F;
    for (int g = 0; g < group; ++g) {
      out[g] = t[g] * (dot[g] * scale[r].scale + inside) + outside;
    }
  }
}

// O += C (sum P' code + Pz) for a sealed V tile; rows without probabilities get nothing.
static void AccumulateRecord(AttendState* s, const uint8_t* record) {
  const RecordLayout& layout = s->shape->value_layout;
  const int group = s->shape->value.group;
  alignas(64) float a[kMaxGroup];
  alignas(64) float z[kMaxGroup];
  alignas(64) float c[kMaxHeadDim + kRowAlign];
  alignas(64) float folded[kMaxGroup];
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.scale), a, group);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.zero), z, group);
  ToFloat(reinterpret_cast<const uint16_t*>(record + layout.other), c, s->value_dim);
  WeightScale scale[kQueryBlock];
  float offset[kQueryBlock];
  for (int r = 0; r < s->rows; ++r) {
    const float* p = s->score + static_cast<int64_t>(r) * kMaxGroup;
    Vf zero = Splat(0.0F);
    for (int g = 0; g < group; g += kWidth) {
      const Vf at = Load(p + g);
      Store(folded + g, at * Load(a + g));
      zero = zero + at * Load(z + g);
    }
    offset[r] = SumLanes(zero);
    int8_t* high = s->weights + static_cast<int64_t>(2 * r) * s->weight_stride;
    scale[r] = QuantiseWeights(folded, group, high, high + s->weight_stride);
  }
  DotRecord(*s, record + layout.codes, s->shape->value.bits, layout);
  for (int r = 0; r < s->rows; ++r) {
    const float* dot = s->product + static_cast<int64_t>(r) * s->product_stride;
    float* out = s->task->partial.rotated + static_cast<int64_t>(r) * s->value_stride;
    for (int d = 0; d < s->value_dim; ++d) {
      out[d] = out[d] + c[d] * (dot[d] * scale[r].scale + offset[r]);
    }
  }
}
