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
    rows.has[r] = s.sight[r] != Sight::kNothing && s.index[r] >= first && s.index[r] < end;
    rows.any = rows.any || rows.has[r];
  }
  return rows;
}

static void ScoreExact(AttendState* s, const RowSet& rows, const uint16_t* exact, int group) {
  ScoreExactTile(s, rows, ExactTile{exact, s->key_dim, s->key_stride, group}, group);
}

static void AccumulateExact(AttendState* s, const RowSet& rows, const uint16_t* exact, int group) {
  AccumulateExactTile(s, rows, ExactTile{exact, s->value_dim, s->value_stride, group}, group);
}

// The record of a K tile, or null.
static const uint8_t* KeyRecord(const AttendState& s, int64_t tile) {
  if (s.task->paged.step != nullptr) {
    if (tile >= s.sealed_tiles) return nullptr;
    const PagedTiles& paged = s.task->paged;
    return RecordOf(*paged.step, paged.sequence, KVARN_KEY, s.task->kv_head, tile);
  }
  const kvarn_plane& keys = *s.task->planes.call->key_plane;
  if (keys.Tiles(s.task->planes.keys)[tile].state != TileState::kSealed) return nullptr;
  return keys.Record(s.task->planes.keys, tile);
}

// The record that all rows read the V tile from, or null.
static const uint8_t* ValueRecord(const AttendState& s, int64_t tile) {
  if (s.task->paged.step != nullptr) {
    if (tile >= s.sealed_tiles) return nullptr;
    const PagedTiles& paged = s.task->paged;
    return RecordOf(*paged.step, paged.sequence, KVARN_VALUE, s.task->kv_head, tile);
  }
  const kvarn_plane& values = *s.task->planes.call->value_plane;
  if (values.Tiles(s.task->planes.values)[tile].state != TileState::kSealed) return nullptr;
  const RecentHeader* recent = s.task->planes.value_recent;
  for (int i = 0; recent != nullptr && i < recent->count; ++i) {
    if (recent->Entries()[i].tile == tile) return nullptr;
  }
  return values.Record(s.task->planes.values, tile);
}

static void ScorePaged(AttendState* s, const RowSet& rows, int64_t tile, const uint8_t* next) {
  const uint8_t* record = KeyRecord(*s, tile);
  if (record != nullptr) return ScoreRecord(s, rows, record, next);
  const int group = s->shape->key.group;
  ScoreExactTile(s, rows, PagedExactTile{s, KVARN_KEY, tile, group, s->key_dim, s->key_stride},
                 group);
}

// Of a tile without a record.
static void AccumulatePaged(AttendState* s, const RowSet& rows, int64_t tile) {
  const int group = s->shape->value.group;
  AccumulateExactTile(
      s, rows, PagedExactTile{s, KVARN_VALUE, tile, group, s->value_dim, s->value_stride}, group);
}

static void ScoreCurrent(AttendState* s, const RowSet& rows, int64_t tile, const uint8_t* next) {
  const kvarn_plane& keys = *s->task->planes.call->key_plane;
  const int group = keys.config.format.group;
  const TileEntry& entry = keys.Tiles(s->task->planes.keys)[tile];
  if (entry.state == TileState::kSealed) {
    ScoreRecord(s, rows, keys.Record(s->task->planes.keys, tile), next);
  } else if (entry.state == TileState::kOpen) {
    ScoreExact(s, rows, keys.ExactTile(s->task->planes.keys, entry.slot), group);
  } else {  // never written: zeros
    __builtin_memset(s->score, 0, sizeof(float) * static_cast<size_t>(s->rows * kMaxGroup));
  }
}

static void ScorePlanes(AttendState* s, int64_t tile, const uint8_t* next) {
  const kvarn_plane& keys = *s->task->planes.call->key_plane;
  const RecentHeader* recent = s->task->planes.key_recent;
  int64_t first = 0;  // index of the first token that has not been served
  for (int i = 0; recent != nullptr && i < recent->count; ++i) {
    const RecentEntry& entry = recent->Entries()[i];
    if (entry.tile != tile) continue;
    const RowSet rows = RowsBetween(*s, first, entry.index);
    if (rows.any) ScoreExact(s, rows, RecentTile(keys, recent, i), keys.config.format.group);
    first = entry.index;
  }
  const RowSet rows = RowsBetween(*s, first, kNoEnd);
  if (rows.any) ScoreCurrent(s, rows, tile, next);
}

static void AccumulateCurrent(AttendState* s, const RowSet& rows, int64_t tile) {
  const kvarn_plane& values = *s->task->planes.call->value_plane;
  const TileEntry& entry = values.Tiles(s->task->planes.values)[tile];
  if (entry.state == TileState::kSealed) {
    AccumulateRecord(s, values.Record(s->task->planes.values, tile));
  } else if (entry.state == TileState::kOpen) {
    AccumulateExact(s, rows, values.ExactTile(s->task->planes.values, entry.slot),
                    values.config.format.group);
  }
}

static void AccumulatePlanes(AttendState* s, int64_t tile) {
  const kvarn_plane& values = *s->task->planes.call->value_plane;
  const int group = values.config.format.group;
  const RecentHeader* recent = s->task->planes.value_recent;
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

// Steps of neighbouring tiles are taken in an order in which none needs what the step before it
// made, so that the processor works on both at a time: the V product of a tile follows the K
// product of the next, whose weights are made before the softmax of this one.
template <int kGroup>
static void AttendTiles(AttendState* s) {
  const bool paged = s->task->paged.step != nullptr;
  for (int64_t tile = s->task->first_tile; tile < s->task->end_tile; ++tile) {
    if (!LoadMask(s, tile * kGroup, kGroup)) continue;
    const RowSet rows = RowsBetween(*s, 0, kNoEnd);
    const bool more = tile + 1 < s->task->end_tile;
    const uint8_t* next = more ? KeyRecord(*s, tile + 1) : nullptr;
    if (paged) {
      ScorePaged(s, rows, tile, next);
    } else {
      ScorePlanes(s, tile, next);
    }
    const uint8_t* record = ValueRecord(*s, tile);
    if (s->values.record != nullptr) AccumulateWeights(s, record);  // of the tile before
    if (next != nullptr) FoldKeys(s, next);
    if (record != nullptr) {
      UpdateSoftmaxAndFold<kGroup>(s, record);
      if (more) {
        Prefetch(ValueRecord(*s, tile + 1), s->shape->value_layout, s->shape->value_layout.other);
      }
      continue;
    }
    UpdateSoftmax<kGroup>(s);
    if (paged) {
      AccumulatePaged(s, rows, tile);
    } else {
      AccumulatePlanes(s, tile);
    }
  }
  if (s->values.record != nullptr) AccumulateWeights(s, nullptr);
}

static void Attend(const AttentionTask& task) {
  const AttentionShape& shape = *task.shape;
  const int group = shape.key.group;
  AttendState s;
  s.task = &task;
  s.shape = &shape;
  s.key_dim = shape.key.head_dim;
  s.value_dim = shape.value.head_dim;
  s.key_stride = RowStride(s.key_dim);
  s.value_stride = RowStride(s.value_dim);
  s.rows = task.n_rows;
  s.heads_per_kv = shape.heads_per_kv;
  const AttentionScratch scratch = MakeAttentionScratch(s.key_dim, s.value_dim);
  s.query = reinterpret_cast<float*>(task.scratch + scratch.query);
  s.rotated = reinterpret_cast<float*>(task.scratch + scratch.rotated);
  s.keys.record = s.values.record = nullptr;
  s.keys.weights = reinterpret_cast<int8_t*>(task.scratch + scratch.weights);
  s.values.weights = s.keys.weights + 2 * static_cast<int64_t>(kQueryBlock) * scratch.weight_stride;
  s.score = reinterpret_cast<float*>(task.scratch + scratch.score);
  s.mask = reinterpret_cast<float*>(task.scratch + scratch.mask);
  s.tile = reinterpret_cast<float*>(task.scratch + scratch.tile);
  s.weight_stride = scratch.weight_stride;
  s.rotated_valid = false;
  const bool paged = task.paged.step != nullptr;
  s.sealed_tiles = paged ? ComputedRows(*task.paged.step, task.paged.sequence) / group : 0;
  if (task.first_tile < task.end_tile) {
    Prefetch(KeyRecord(s, task.first_tile), shape.key_layout, 0);
    Prefetch(ValueRecord(s, task.first_tile), shape.value_layout, 0);
  }
  LoadQueries(&s);
  for (int r = 0; r < s.rows; ++r) {
    task.partial.max[r] = kMinusInfinity;
    task.partial.sum[r] = 0.0F;
  }
  const size_t bytes = sizeof(float) * static_cast<size_t>(s.rows * s.value_stride);
  __builtin_memset(task.partial.rotated, 0, bytes);
  __builtin_memset(task.partial.plain, 0, bytes);

  if (group == 64) return AttendTiles<64>(&s);
  AttendTiles<128>(&s);
}
