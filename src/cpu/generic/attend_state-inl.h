// SPDX-License-Identifier: Apache-2.0
//
// Attention of a block of query rows, first part: what all steps share and the queries
// (docs/architecture.md section 5). See vec-inl.h on inclusion.

static const float kMinusInfinity = -__builtin_inff();

// What a query row sees of a tile. kAll: its mask is zero in every column.
enum class Sight { kNothing, kSome, kAll };

// The product of a record with weights of all rows.
struct RecordProduct {
  const uint8_t* record;  // whose weights are made, or null
  int8_t* weights;        // [rows][2][weight_stride], high then low
  DotRow rows[kQueryBlock];
};

// Everything the steps share.
struct AttendState {
  const AttentionTask* task;
  const AttentionShape* shape;
  int key_dim, value_dim;
  int key_stride, value_stride;
  int rows;
  int heads_per_kv;
  float* query;
  float* rotated;
  float* score;  // [rows][kMaxGroup], may become the probabilities
  float* mask;   // [rows][kMaxGroup]
  float* tile;
  int weight_stride;
  bool rotated_valid;
  int8_t balance[kMaxHeadDim];  // of the rotated queries
  float slope[kQueryBlock];     // ALiBi
  int mask_row[kQueryBlock];    // row of `mask` that holds this row's mask
  Sight sight[kQueryBlock];
  RecordProduct keys, values;
  alignas(64) float value_scale[kMaxGroup];  // a and z of a V record
  alignas(64) float value_zero[kMaxGroup];
  alignas(64) float unused[kMaxGroup];  // scores of rows that read another representation
  int64_t index[kQueryBlock];           // planes: of the token among those of the call
  int64_t sealed_tiles;                 // paged: tiles below are records
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
