// SPDX-License-Identifier: Apache-2.0
//
// Attention of one block of query rows over a range of tiles: which representation of a tile each
// row reads, and the loop. A row whose token precedes the sealing of a tile within the call reads
// the exact copy kept then; K and V decide separately (docs/architecture.md section 4).

static const int64_t kNoEnd = INT64_MAX;

// Rows that see the tile and whose tokens have an index in [first, end).
static RowSet RowsBetween(const AttendState& s, int64_t first, int64_t end) {
  RowSet rows;
  rows.any = false;
  for (int r = 0; r < s.rows; ++r) {
    rows.has[r] = s.visible[r] && s.index[r] >= first && s.index[r] < end;
    rows.any = rows.any || rows.has[r];
  }
  return rows;
}

static void ScoreCurrent(AttendState* s, const RowSet& rows, int64_t tile) {
  const kvarn_plane& keys = *s->call->key_plane;
  const int group = keys.config.format.group;
  const TileEntry& entry = keys.Tiles(s->task->keys)[tile];
  if (entry.state == TileState::kSealed) {
    ScoreRecord(s, rows, keys, keys.Record(s->task->keys, tile));
  } else if (entry.state == TileState::kOpen) {
    ScoreExact(s, rows, keys.ExactTile(s->task->keys, entry.slot), group);
  } else {  // never written: zeros
    __builtin_memset(s->score, 0, sizeof(float) * static_cast<size_t>(s->rows * kMaxGroup));
  }
}

static void Score(AttendState* s, int64_t tile) {
  const kvarn_plane& keys = *s->call->key_plane;
  const RecentHeader* recent = s->task->key_recent;
  int64_t first = 0;  // index of the first token that has not been served
  for (int i = 0; recent != nullptr && i < recent->count; ++i) {
    const RecentEntry& entry = recent->Entries()[i];
    if (entry.tile != tile) continue;
    const RowSet rows = RowsBetween(*s, first, entry.index);
    if (rows.any) ScoreExact(s, rows, RecentTile(keys, recent, i), keys.config.format.group);
    first = entry.index;
  }
  const RowSet rows = RowsBetween(*s, first, kNoEnd);
  if (rows.any) ScoreCurrent(s, rows, tile);
}

static void AccumulateCurrent(AttendState* s, const RowSet& rows, int64_t tile) {
  const kvarn_plane& values = *s->call->value_plane;
  const TileEntry& entry = values.Tiles(s->task->values)[tile];
  if (entry.state == TileState::kSealed) {
    AccumulateRecord(s, values, values.Record(s->task->values, tile));
  } else if (entry.state == TileState::kOpen) {
    AccumulateExact(s, rows, values.ExactTile(s->task->values, entry.slot),
                    values.config.format.group);
  }
}

static void Accumulate(AttendState* s, int64_t tile) {
  const kvarn_plane& values = *s->call->value_plane;
  const int group = values.config.format.group;
  const RecentHeader* recent = s->task->value_recent;
  int64_t first = 0;
  for (int i = 0; recent != nullptr && i < recent->count; ++i) {
    const RecentEntry& entry = recent->Entries()[i];
    if (entry.tile != tile) continue;
    const RowSet rows = RowsBetween(*s, first, entry.index);
    if (rows.any) AccumulateExact(s, rows, RecentTile(values, recent, i), group);
    for (int r = 0; r < s->rows; ++r) {  // done with: the record, if read, takes all rows
      if (!rows.has[r]) continue;
      __builtin_memset(s->score + static_cast<int64_t>(r) * kMaxGroup, 0,
                       sizeof(float) * static_cast<size_t>(group));
    }
    first = entry.index;
  }
  const RowSet rows = RowsBetween(*s, first, kNoEnd);
  if (rows.any) AccumulateCurrent(s, rows, tile);
}

static void Attend(const AttentionTask& task) {
  const kvarn_attention& call = *task.call;
  const kvarn_plane& keys = *call.key_plane;
  const kvarn_plane& values = *call.value_plane;
  const int group = keys.config.format.group;
  AttendState s;
  s.task = &task;
  s.call = &call;
  s.key_dim = keys.config.format.head_dim;
  s.value_dim = values.config.format.head_dim;
  s.key_stride = RowStride(s.key_dim);
  s.value_stride = RowStride(s.value_dim);
  s.rows = task.n_rows;
  s.heads_per_kv = call.n_heads / call.n_kv_heads;
  const AttentionScratch scratch = MakeAttentionScratch(s.key_dim, s.value_dim);
  s.query = reinterpret_cast<float*>(task.scratch + scratch.query);
  s.rotated = reinterpret_cast<float*>(task.scratch + scratch.rotated);
  s.weights = reinterpret_cast<int8_t*>(task.scratch + scratch.weights);
  s.score = reinterpret_cast<float*>(task.scratch + scratch.score);
  s.mask = reinterpret_cast<float*>(task.scratch + scratch.mask);
  s.product = reinterpret_cast<float*>(task.scratch + scratch.product);
  s.tile = reinterpret_cast<float*>(task.scratch + scratch.tile);
  s.weight_stride = scratch.weight_stride;
  s.product_stride = scratch.product_stride;
  s.rotated_valid = false;
  LoadQueries(&s);
  for (int r = 0; r < s.rows; ++r) {
    task.partial.max[r] = kMinusInfinity;
    task.partial.sum[r] = 0.0F;
  }
  const size_t bytes = sizeof(float) * static_cast<size_t>(s.rows * s.value_stride);
  __builtin_memset(task.partial.rotated, 0, bytes);
  __builtin_memset(task.partial.plain, 0, bytes);

  for (int64_t tile = task.first_tile; tile < task.end_tile; ++tile) {
    if (!LoadMask(&s, tile * group, group)) continue;
    Score(&s, tile);
    UpdateSoftmax(&s, group);
    Accumulate(&s, tile);
  }
}
