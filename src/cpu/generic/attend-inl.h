// SPDX-License-Identifier: Apache-2.0
//
// Steps of attention: one block of query rows against one representation of a tile
// (docs/architecture.md section 5); attend_tiles-inl.h strings them together. The inner products
// see raw codes: a, t, C fold into the weights and the epilogue. See vec-inl.h.

// exp(x) for x <= 0; below -87 it is 0. Degree-6 polynomial after reduction by ln 2, relative error
// below 3e-7.
KVARN_INLINE Vf Exp(Vf x) {
  const Vf clamped = Max(x, Splat(-87.0F));
  const Vf n = Round(clamped * 1.44269504088896341F);
  const Vf r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  Vf p = Splat(1.3981999507e-3F);
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * r * r + r) + 1.0F;
  const Vi bits = (__builtin_convertvector(n, Vi) + 127) << 23;
  const Vf scaled = p * reinterpret_cast<Vf>(bits);
  return x < -87.0F ? Splat(0.0F) : scaled;
}
KVARN_INLINE float ExpF(float x) { return Exp(Splat(x))[0]; }

static const float kMinusInfinity = -__builtin_inff();

// Everything the steps below share.
struct AttendState {
  const AttentionTask* task;
  const AttentionShape* shape;
  int key_dim, value_dim;
  int key_stride, value_stride;
  int rows;
  int heads_per_kv;
  float* query;
  float* rotated;
  int8_t* weights;
  float* score;    // [rows][kMaxGroup], becomes the probabilities
  float* mask;     // [rows][kMaxGroup]
  float* product;  // [rows][product_stride]
  float* tile;
  int weight_stride;
  int product_stride;
  bool rotated_valid;
  int8_t balance[kMaxHeadDim];  // of the rotated queries
  float slope[kQueryBlock];     // ALiBi
  int mask_row[kQueryBlock];    // row of `mask` that holds this row's mask
  bool visible[kQueryBlock];    // any column of the tile visible
  int64_t index[kQueryBlock];   // planes: of the token among those of the call
  int64_t sealed_tiles;         // paged: tiles below are records
};

// Rows of the block that read one representation of a tile.
struct RowSet {
  bool has[kQueryBlock];
  bool any;
};

struct QueryIndex {
  int token;
  int head;
};
KVARN_INLINE QueryIndex IndexOf(const AttendState& s, int row) {
  const int flat = s.task->first_row + row;
  return QueryIndex{flat / s.heads_per_kv,
                    s.task->kv_head * s.heads_per_kv + flat % s.heads_per_kv};
}

// ALiBi slope of a head (arXiv 2108.12409): powers of 2^(-max_bias/2^k), odd powers of its root for
// the heads beyond the largest power of two.
static float AlibiSlope(float max_bias, int n_heads, int head) {
  if (max_bias <= 0.0F) return 1.0F;
  int power = 1;
  while (2 * power <= n_heads) power *= 2;
  const float base = head < power ? -max_bias / static_cast<float>(power)
                                  : -max_bias / 2.0F / static_cast<float>(power);
  const int exponent = head < power ? head + 1 : 2 * (head - power) + 1;
  return __builtin_powf(__builtin_exp2f(base), static_cast<float>(exponent));
}

// fp32 values of a row of the call's type.
static void LoadRow(kvarn_dtype dtype, const uint8_t* from, float* to, int count) {
  if (dtype == KVARN_FP16) {
    ToFloat(reinterpret_cast<const uint16_t*>(from), to, count);
  } else if (dtype == KVARN_FP32) {
    __builtin_memcpy(to, from, sizeof(float) * static_cast<size_t>(count));
  } else {
    for (int d = 0; d < count; ++d) {
      uint16_t bits = 0;
      __builtin_memcpy(&bits, from + 2 * d, sizeof(bits));
      to[d] = __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
    }
  }
}

static void LoadQueries(AttendState* s) {
  const AttentionTask& task = *s->task;
  const kvarn_attention* planes = task.planes.call;
  const bool same_mask = planes == nullptr || planes->mask_heads == 1;  // for all heads of a token
  for (int r = 0; r < s->rows; ++r) {
    const QueryIndex at = IndexOf(*s, r);
    const uint8_t* from =
        task.query + at.token * task.query_token_stride + at.head * task.query_head_stride;
    float* to = s->query + static_cast<int64_t>(r) * s->key_stride;
    LoadRow(s->shape->dtype, from, to, s->key_dim);
    for (int d = 0; d < s->key_dim; ++d) to[d] = to[d] * s->shape->scale;
    for (int d = s->key_dim; d < s->key_stride; ++d) to[d] = 0.0F;
    s->index[r] = planes == nullptr
                      ? 0
                      : static_cast<int64_t>(task.planes.stream) * planes->n_tokens + at.token;
    s->slope[r] = AlibiSlope(s->shape->max_bias, s->shape->n_heads, at.head);
    s->mask_row[r] = r;
    if (r > 0 && same_mask && IndexOf(*s, r - 1).token == at.token) {
      s->mask_row[r] = s->mask_row[r - 1];
    }
  }
}

// Causal mask of one row of a paged sequence. False if it sees nothing of the tile.
static bool LoadCausalMask(const AttendState& s, int token, int64_t first_row, int group,
                           float* mask) {
  const PagedTiles& paged = s.task->paged;
  const int64_t seen = ComputedRows(*paged.step, paged.sequence) + token + 1 - first_row;
  for (int g = 0; g < group; ++g) mask[g] = g < seen ? 0.0F : kMinusInfinity;
  return seen > 0;
}

// The mask of one row of a call on planes. False if it sees nothing of the tile.
static bool LoadGivenMask(const AttendState& s, QueryIndex at, int64_t first_row, int group,
                          float* mask) {
  const kvarn_attention& call = *s.task->planes.call;
  const int64_t left = call.n_rows - first_row;
  const int columns = static_cast<int>(left < group ? left : group);
  for (int g = columns; g < group; ++g) mask[g] = kMinusInfinity;
  if (call.mask == nullptr) {
    for (int g = 0; g < columns; ++g) mask[g] = 0.0F;
    return true;
  }
  const uint8_t* from =
      reinterpret_cast<const uint8_t*>(call.mask) +
      static_cast<size_t>(s.task->planes.stream % call.mask_streams) * call.mask_stream_stride +
      static_cast<size_t>(at.head % call.mask_heads) * call.mask_head_stride +
      static_cast<size_t>(at.token) * call.mask_token_stride +
      static_cast<size_t>(first_row) * sizeof(uint16_t);
  uint16_t half[kMaxGroup];
  __builtin_memcpy(half, from, sizeof(uint16_t) * static_cast<size_t>(columns));
  uint16_t differs = 0;  // from -inf
  for (int g = 0; g < columns; ++g) {
    differs = static_cast<uint16_t>(differs | (half[g] ^ 0xFC00U));
  }
  if (differs == 0) return false;
  ToFloat(half, mask, columns);
  return true;
}

// Fills `mask` for one tile and finds the rows that see any of it. Columns beyond the call's rows
// are -inf. False if no row sees anything.
static bool LoadMask(AttendState* s, int64_t first_row, int group) {
  bool any = false;
  for (int r = 0; r < s->rows; ++r) {
    if (s->mask_row[r] != r) {
      s->visible[r] = s->visible[s->mask_row[r]];
      continue;
    }
    float* mask = s->mask + static_cast<int64_t>(r) * kMaxGroup;
    const QueryIndex at = IndexOf(*s, r);
    s->visible[r] = s->task->planes.call != nullptr
                        ? LoadGivenMask(*s, at, first_row, group, mask)
                        : LoadCausalMask(*s, at.token, first_row, group, mask);
    any = any || s->visible[r];
  }
  return any;
}

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

// fp32 copy of an exact tile, [group][stride], padding zero.
static void LoadExactTile(const AttendState& s, const uint16_t* exact, int group, int dim,
                          int stride) {
  for (int g = 0; g < group; ++g) {
    float* to = s.tile + static_cast<int64_t>(g) * stride;
    ToFloat(exact + static_cast<int64_t>(g) * dim, to, dim);
    for (int d = dim; d < stride; ++d) to[d] = 0.0F;
  }
}

// Sums of neighbours: lanes 2i and 2i + 1 of a, then of b.
template <int... kLane>
KVARN_INLINE Vf AddNeighbours(Vf a, Vf b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, (2 * kLane)...) +
         __builtin_shufflevector(a, b, (2 * kLane + 1)...);
}

// Likewise of a tile of a paged sequence, row by row; zeros beyond its length.
static void LoadPagedTile(const AttendState& s, kvarn_role role, int64_t tile, int group, int dim,
                          int stride) {
  const PagedTiles& paged = s.task->paged;
  const kvarn_paged_step& step = *paged.step;
  const int first = static_cast<int>(tile) * group;
  const int left = step.lengths[paged.sequence] - first;
  const int rows = left < group ? left : group;
  for (int g = 0; g < rows; ++g) {
    float* to = s.tile + static_cast<int64_t>(g) * stride;
    LoadRow(step.dtype, ExactRow(step, paged.sequence, role, s.task->kv_head, first + g), to, dim);
    for (int d = dim; d < stride; ++d) to[d] = 0.0F;
  }
  const size_t rest = static_cast<size_t>(group - rows) * static_cast<size_t>(stride);
  __builtin_memset(s.tile + static_cast<int64_t>(rows) * stride, 0, sizeof(float) * rest);
}

// Scores of the tile in `tile`, kWidth columns at a time, whose sums over lanes are then formed
// together.
static void ScoreLoaded(AttendState* s, const RowSet& rows, int group) {
  const int stride = s->key_stride;
  for (int r = 0; r < s->rows; ++r) {
    if (!rows.has[r]) continue;
    const float* q = s->query + static_cast<int64_t>(r) * stride;
    float* out = s->score + static_cast<int64_t>(r) * kMaxGroup;
    for (int g = 0; g < group; g += kWidth) {
      const float* k = s->tile + static_cast<int64_t>(g) * stride;
      Vf sum[kWidth] = {};
      for (int d = 0; d < stride; d += kWidth) {
        const Vf at = Load(q + d);
        for (int i = 0; i < kWidth; ++i) {
          sum[i] = sum[i] + at * Load(k + static_cast<int64_t>(i) * stride + d);
        }
      }
      for (int n = kWidth; n > 1; n /= 2) {
        for (int i = 0; i < n / 2; ++i) {
          sum[i] =
              AddNeighbours(sum[2 * i], sum[2 * i + 1], std::make_integer_sequence<int, kWidth>());
        }
      }
      Store(out + g, sum[0]);
    }
  }
}

// Soft-cap, mask and the running softmax; `score` becomes probabilities relative to the new
// maximum. A row that sees nothing gets zeros.
static void UpdateSoftmax(AttendState* s, int group) {
  const float softcap = s->shape->softcap;
  const AttentionPartial& partial = s->task->partial;
  for (int r = 0; r < s->rows; ++r) {
    float* p = s->score + static_cast<int64_t>(r) * kMaxGroup;
    if (!s->visible[r]) {
      __builtin_memset(p, 0, sizeof(float) * static_cast<size_t>(group));
      continue;
    }
    if (softcap != 0.0F) {
      for (int g = 0; g < group; ++g) p[g] = softcap * __builtin_tanhf(p[g] / softcap);
    }
    const float* mask = s->mask + static_cast<int64_t>(s->mask_row[r]) * kMaxGroup;
    const float slope = s->slope[r];
    Vf top = Splat(kMinusInfinity);
    for (int g = 0; g < group; g += kWidth) {
      const Vf x = Load(p + g) + slope * Load(mask + g);
      Store(p + g, x);
      top = Max(top, x);
    }
    const float largest = MaxLanes(top);
    if (!(largest > kMinusInfinity)) {  // every column -inf (or NaN): nothing to add
      __builtin_memset(p, 0, sizeof(float) * static_cast<size_t>(group));
      continue;
    }
    const float before = partial.max[r];
    if (largest > before) {
      const float shrink = before > kMinusInfinity ? ExpF(before - largest) : 0.0F;
      partial.max[r] = largest;
      partial.sum[r] = partial.sum[r] * shrink;
      float* rotated = partial.rotated + static_cast<int64_t>(r) * s->value_stride;
      float* plain = partial.plain + static_cast<int64_t>(r) * s->value_stride;
      for (int d = 0; d < s->value_stride; d += kWidth) {
        Store(rotated + d, Load(rotated + d) * shrink);
        Store(plain + d, Load(plain + d) * shrink);
      }
    }
    const float reference = partial.max[r];
    Vf sum = Splat(0.0F);
    for (int g = 0; g < group; g += kWidth) {
      const Vf e = Exp(Load(p + g) - reference);
      Store(p + g, e);
      sum = sum + e;
    }
    partial.sum[r] = partial.sum[r] + SumLanes(sum);
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

// Of the tile in `tile`.
static void AccumulateLoaded(AttendState* s, const RowSet& rows, int group) {
  constexpr int kParts = kRowAlign / kWidth;  // sums in flight: each waits for its last addition
  const int stride = s->value_stride;
  for (int r = 0; r < s->rows; ++r) {
    if (!rows.has[r]) continue;
    const float* p = s->score + static_cast<int64_t>(r) * kMaxGroup;
    float* out = s->task->partial.plain + static_cast<int64_t>(r) * stride;
    for (int d = 0; d < stride; d += kRowAlign) {
      Vf sum[kParts];
      for (int i = 0; i < kParts; ++i) sum[i] = Load(out + d + i * kWidth);
      for (int g = 0; g < group; ++g) {
        const float* v = s->tile + static_cast<int64_t>(g) * stride + d;
        for (int i = 0; i < kParts; ++i) sum[i] = sum[i] + p[g] * Load(v + i * kWidth);
      }
      for (int i = 0; i < kParts; ++i) Store(out + d + i * kWidth, sum[i]);
    }
  }
}
