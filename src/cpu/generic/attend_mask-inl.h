// SPDX-License-Identifier: Apache-2.0
//
// Which columns of a tile a query row sees. See vec-inl.h on inclusion.

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
