// SPDX-License-Identifier: Apache-2.0
//
// Attention against an exact tile, in fp32: kExactRows rows at a time are converted into `tile` and
// meet all query rows while they are in the first-level cache. See vec-inl.h on inclusion.

// Rows [first, first + kExactRows) of an exact tile as fp32, [kExactRows][stride], padding zero.
struct ExactTile {
  const uint16_t* rows;  // fp16 [group][dim]
  int dim, stride, group;

  KVARN_INLINE_MEMBER void Load(int first, float* to) const {
    const uint16_t* from = rows + static_cast<int64_t>(first) * dim;
    const int ahead = first + 2 * kExactRows <= group ? kExactRows * dim : 0;
    for (int at = 0; at < ahead; at += 32) __builtin_prefetch(from + ahead + at, 0, 2);
    if (dim == stride) return ToFloat(from, to, kExactRows * dim);
    for (int g = 0; g < kExactRows; ++g) {
      ToFloat(from + static_cast<int64_t>(g) * dim, to, dim);
      for (int d = dim; d < stride; ++d) to[d] = 0.0F;
      to += stride;
    }
  }
};

// Zeros instead of a row with a NaN or Inf, as records have it: such a row must not reach tokens
// that do not see it, by 0 * Inf.
KVARN_INLINE void ZeroUnlessFinite(float* row, int stride) {
  Vf poison = {};
  for (int d = 0; d < stride; d += kWidth) poison = poison + Load(row + d) * Vf{};
  if (!AnyLane(poison != poison)) return;
  for (int d = 0; d < stride; ++d) row[d] = 0.0F;
}

// Likewise of a tile of a paged sequence; zeros beyond its length.
struct PagedExactTile {
  const AttendState* s;
  kvarn_role role;
  int64_t tile;
  int group, dim, stride;

  KVARN_INLINE_MEMBER void Load(int first, float* to) const {
    const PagedTiles& paged = s->task->paged;
    const kvarn_paged_step& step = *paged.step;
    const int token = static_cast<int>(tile) * group + first;
    for (int g = 0; g < kExactRows; ++g) {
      int d = 0;
      if (token + g < step.lengths[paged.sequence]) {
        LoadRow(step.dtype, ExactRow(step, paged.sequence, role, s->task->kv_head, token + g), to,
                dim);
        d = dim;
      }
      for (; d < stride; ++d) to[d] = 0.0F;
      ZeroUnlessFinite(to, stride);
      to += stride;
    }
  }
};

// Sums of neighbours: lanes 2i and 2i + 1 of a, then of b.
template <int... kLane>
KVARN_INLINE Vf AddNeighbours(Vf a, Vf b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, (2 * kLane)...) +
         __builtin_shufflevector(a, b, (2 * kLane + 1)...);
}

// Products of a query row with kWidth rows, whose sums over lanes are then formed together.
KVARN_INLINE Vf ScoreColumns(const float* q, const float* k, int stride) {
  Vf sum[kWidth];
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) sum[i] = Vf{};
  for (int d = 0; d < stride; d += kWidth) {
    const Vf at = Load(q + d);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      sum[i] = Fma(at, Load(k + static_cast<int64_t>(i) * stride + d), sum[i]);
    }
  }
#pragma GCC unroll 4
  for (int n = kWidth; n > 1; n /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; ++i) {
      sum[i] = AddNeighbours(sum[2 * i], sum[2 * i + 1], std::make_integer_sequence<int, kWidth>());
    }
  }
  return sum[0];
}

template <typename Tile>
static void ScoreExactTile(AttendState* s, const RowSet& rows, const Tile& tile, int group) {
  const int stride = s->key_stride;
  for (int first = 0; first < group; first += kExactRows) {
    tile.Load(first, s->tile);
    for (int r = 0; r < s->rows; ++r) {
      if (!rows.has[r]) continue;
      const float* q = s->query + static_cast<int64_t>(r) * stride;
      float* out = s->score + static_cast<int64_t>(r) * kMaxGroup + first;
      for (int g = 0; g < kExactRows; g += kWidth) {
        Store(out + g, ScoreColumns(q, s->tile + static_cast<int64_t>(g) * stride, stride));
      }
    }
  }
}

template <typename Tile>
static void AccumulateExactTile(AttendState* s, const RowSet& rows, const Tile& tile, int group) {
  constexpr int kParts = kRowAlign / kWidth;
  const int stride = s->value_stride;
  for (int first = 0; first < group; first += kExactRows) {
    tile.Load(first, s->tile);
    for (int r = 0; r < s->rows; ++r) {
      if (!rows.has[r]) continue;
      const float* p = s->score + static_cast<int64_t>(r) * kMaxGroup + first;
      float* out = s->task->partial.plain + static_cast<int64_t>(r) * stride;
      for (int d = 0; d < stride; d += kRowAlign) {
        Vf even[kParts];  // sums of even and odd rows: each waits for its last addition
        Vf odd[kParts];
#pragma GCC unroll 8
        for (int i = 0; i < kParts; ++i) {
          even[i] = Load(out + d + i * kWidth);
          odd[i] = Vf{};
        }
        const float* v = s->tile + d;
        for (int g = 0; g < kExactRows; g += 2) {
#pragma GCC unroll 8
          for (int i = 0; i < kParts; ++i) {
            even[i] = Fma(Fill(p[g]), Load(v + i * kWidth), even[i]);
            odd[i] = Fma(Fill(p[g + 1]), Load(v + stride + i * kWidth), odd[i]);
          }
          v += 2 * static_cast<int64_t>(stride);
        }
#pragma GCC unroll 8
        for (int i = 0; i < kParts; ++i) Store(out + d + i * kWidth, even[i] + odd[i]);
      }
    }
  }
}
