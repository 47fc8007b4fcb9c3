// SPDX-License-Identifier: Apache-2.0
//
// Which columns of a tile a query row sees. See vec-inl.h on inclusion.

// Columns from `columns` on see nothing.
static Sight MaskFrom(int64_t columns, int group, float* mask) {
  if (columns >= group) return Sight::kAll;
  for (int g = 0; g < group; ++g) mask[g] = g < columns ? 0.0F : kMinusInfinity;
  return columns > 0 ? Sight::kSome : Sight::kNothing;
}

// Causal mask of one row of a paged sequence. `mask` is written if some of the tile is seen.
static Sight LoadCausalMask(const AttendState& s, int token, int64_t first_row, int group,
                            float* mask) {
  const PagedTiles& paged = s.task->paged;
  return MaskFrom(ComputedRows(*paged.step, paged.sequence) + token + 1 - first_row, group, mask);
}

// The mask of one row of a call on planes. `mask` is written if some of the tile is seen.
static Sight LoadGivenMask(const AttendState& s, QueryIndex at, int64_t first_row, int group,
                           float* mask) {
  const kvarn_attention& call = *s.task->planes.call;
  const int64_t left = call.n_rows - first_row;
  if (call.mask == nullptr) return MaskFrom(left, group, mask);
  const int columns = static_cast<int>(left < group ? left : group);
  const uint8_t* from =
      reinterpret_cast<const uint8_t*>(call.mask) +
      static_cast<size_t>(s.task->planes.stream % call.mask_streams) * call.mask_stream_stride +
      static_cast<size_t>(at.head % call.mask_heads) * call.mask_head_stride +
      static_cast<size_t>(at.token) * call.mask_token_stride +
      static_cast<size_t>(first_row) * sizeof(uint16_t);
  uint16_t half[kMaxGroup];
  __builtin_memcpy(half, from, sizeof(uint16_t) * static_cast<size_t>(columns));
  uint16_t set = 0;      // bits of any column: 0 if all are +0
  uint16_t differs = 0;  // bits in which any column differs from -inf
  for (int g = 0; g < columns; ++g) {
    set = static_cast<uint16_t>(set | half[g]);
    differs = static_cast<uint16_t>(differs | (half[g] ^ 0xFC00U));
  }
  if (differs == 0) return Sight::kNothing;
  if (set == 0) return MaskFrom(columns, group, mask);
  ToFloat(half, mask, columns);
  for (int g = columns; g < group; ++g) mask[g] = kMinusInfinity;
  return Sight::kSome;
}

// Finds the rows that see any of one tile, and what they see of it. Columns beyond the call's rows
// are -inf. False if no row sees anything.
static bool LoadMask(AttendState* s, int64_t first_row, int group) {
  bool any = false;
  for (int r = 0; r < s->rows; ++r) {
    if (s->mask_row[r] != r) {
      s->sight[r] = s->sight[s->mask_row[r]];
      continue;
    }
    float* mask = s->mask + static_cast<int64_t>(r) * kMaxGroup;
    const QueryIndex at = IndexOf(*s, r);
    s->sight[r] = s->task->planes.call != nullptr
                      ? LoadGivenMask(*s, at, first_row, group, mask)
                      : LoadCausalMask(*s, at.token, first_row, group, mask);
    any = any || s->sight[r] != Sight::kNothing;
  }
  return any;
}
