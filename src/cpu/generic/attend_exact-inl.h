// SPDX-License-Identifier: Apache-2.0
//
// Attention against an exact tile, in fp32. See vec-inl.h on inclusion.

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
