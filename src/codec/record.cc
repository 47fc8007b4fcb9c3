// SPDX-License-Identifier: Apache-2.0
#include "codec/record.h"

#include <bit>
#include <cstring>
#include <new>

#include "codec/balance.h"
#include "codec/encode_published.h"
#include "codec/pack.h"
#include "codec/rotation.h"
#include "codec/tile_scratch.h"
#include "cpu/kernels.h"
#include "format/half.h"
#include "format/record_layout.h"

namespace kvarn {
namespace {

struct TileVectors {
  uint16_t scale[kMaxHeadDim];  // K [D]; V [G] fits, G <= 128
  uint16_t zero[kMaxHeadDim];
  uint16_t other[kMaxHeadDim];
};
static_assert(kMaxHeadDim >= kMaxGroup);

void StoreVector(const uint16_t* values, int count, uint8_t* out) {
  std::memcpy(out, values, sizeof(uint16_t) * static_cast<size_t>(count));
}

// Token vectors are indexed by position in the group; positions without a row get scale 0.
void StoreTokenVector(const uint16_t* values, int n_rows, const int32_t* position, int group,
                      uint8_t* out) {
  uint16_t placed[kMaxGroup] = {};
  for (int i = 0; i < n_rows; ++i) placed[position != nullptr ? position[i] : i] = values[i];
  StoreVector(placed, group, out);
}

void StoreScales(const kvarn_format& format, const TileVectors& v, int n_rows,
                 const int32_t* position, uint8_t* record) {
  const RecordLayout layout = MakeRecordLayout(format);
  if (format.role == KVARN_KEY) {
    StoreVector(v.scale, format.head_dim, record + layout.scale);
    StoreVector(v.zero, format.head_dim, record + layout.zero);
    StoreTokenVector(v.other, n_rows, position, format.group, record + layout.other);
  } else {
    StoreVector(v.other, format.head_dim, record + layout.other);
    StoreTokenVector(v.scale, n_rows, position, format.group, record + layout.scale);
    StoreTokenVector(v.zero, n_rows, position, format.group, record + layout.zero);
  }
}

// What neither codes nor vectors fill: e where none is given, and what rounds the record up.
void ClearPadding(const RecordLayout& layout, uint8_t* record) {
  std::memset(record + layout.balance, 0, layout.bytes - layout.balance);
}

bool ScalesByBalance(const kvarn_format& format) {
  return format.role == KVARN_KEY && format.mode == KVARN_BALANCED;
}

// Rows come from `load`: row g, times `scale` (null: 1), into head_dim floats.
template <typename LoadRow>
kvarn_status Encode(const kvarn_format& format, const LoadRow& load, int n_rows,
                    const int32_t* position, const int8_t* balance, uint8_t* record,
                    kvarn_counts* counts) {
  const Rotation* rotation = FindRotation(format.head_dim);
  if (rotation == nullptr) return KVARN_ERROR_MEMORY;
  TileScratch& scratch = ThreadScratch();
  scratch.Reserve(format);
  const int dim = format.head_dim;
  const int stride = RowStride(dim);
  const RecordLayout layout = MakeRecordLayout(format);
  const bool scales = ScalesByBalance(format) && balance != nullptr;
  const Kernels& kernels = ActiveKernels();
  float scale[kMaxHeadDim];
  for (int d = 0; d < dim && scales; ++d) scale[d] = BalanceScale(balance[d]);
  for (int g = 0; g < n_rows; ++g) {
    float* row = scratch.rows.data() + static_cast<ptrdiff_t>(g) * stride;
    load(g, scales ? scale : nullptr, row);
    for (int d = dim; d < stride; ++d) row[d] = 0.0F;
    kernels.rotate(*rotation, row, 1, stride, false);  // while the row is in the first-level cache
  }

  TileVectors vectors;
  EncodeTile tile;
  tile.head_dim = dim;
  tile.n_rows = n_rows;
  tile.bits = format.bits;
  tile.rows = scratch.rows.data();
  tile.scratch = scratch.work.data();
  tile.codes = scratch.codes.data();
  tile.scale = vectors.scale;
  tile.zero = vectors.zero;
  tile.other = vectors.other;
  const bool key = format.role == KVARN_KEY;
  if (format.mode == KVARN_PUBLISHED) {
    EncodePublished(key, &tile);
  } else {
    (key ? kernels.encode_key : kernels.encode_value)(&tile);
  }

  const uint8_t* codes = scratch.codes.data();
  if (n_rows != format.group || position != nullptr) {
    std::memset(scratch.placed.data(), 0,
                static_cast<size_t>(format.group) * static_cast<size_t>(dim));
    for (int i = 0; i < n_rows; ++i) {
      const int at = position != nullptr ? position[i] : i;
      std::memcpy(scratch.placed.data() + static_cast<ptrdiff_t>(at) * dim,
                  codes + static_cast<ptrdiff_t>(i) * dim, static_cast<size_t>(dim));
    }
    codes = scratch.placed.data();
  }
  ClearPadding(layout, record);
  PackCodes(format, codes, record + layout.codes);
  StoreScales(format, vectors, n_rows, position, record);
  if (layout.has_balance && balance != nullptr) {
    std::memcpy(record + layout.balance, balance, static_cast<size_t>(dim));
  }
  if (counts != nullptr) counts->values_saturated += tile.saturated;
  return KVARN_OK;
}

kvarn_status Decode(const kvarn_format& format, const uint8_t* record, float* rows) {
  const Rotation* rotation = FindRotation(format.head_dim);
  if (rotation == nullptr) return KVARN_ERROR_MEMORY;
  TileScratch& scratch = ThreadScratch();
  scratch.Reserve(format);
  const int dim = format.head_dim;
  const int group = format.group;
  const int stride = RowStride(dim);
  const RecordLayout layout = MakeRecordLayout(format);
  UnpackCodes(format, record + layout.codes, scratch.codes.data());

  const auto load = [&](size_t offset, int index) {
    uint16_t half = 0;
    std::memcpy(&half, record + offset + sizeof(half) * static_cast<size_t>(index), sizeof(half));
    return HalfToFloat(half);
  };
  const bool key = format.role == KVARN_KEY;
  const float centre = static_cast<float>((1 << format.bits) - 1) * 0.5F;
  float line_scale[kMaxHeadDim];
  float line_zero[kMaxHeadDim];
  float other[kMaxHeadDim];
  const int lines = key ? dim : group;
  const int items = key ? group : dim;
  for (int i = 0; i < lines; ++i) {
    line_scale[i] = load(layout.scale, i);
    line_zero[i] = load(layout.zero, i);
  }
  for (int i = 0; i < items; ++i) other[i] = load(layout.other, i);

  float inverse_balance[kMaxHeadDim];
  for (int d = 0; d < dim && layout.has_balance; ++d) {
    const auto exponent = std::bit_cast<int8_t>(record[layout.balance + static_cast<size_t>(d)]);
    inverse_balance[d] = BalanceScale(-static_cast<int>(exponent));
  }

  float* work = scratch.rows.data();
  for (int g = 0; g < group; ++g) {
    float* row = work + static_cast<ptrdiff_t>(g) * stride;
    const uint8_t* code = scratch.codes.data() + static_cast<ptrdiff_t>(g) * dim;
    if (!key) {
      for (int d = 0; d < dim; ++d) {
        row[d] = (static_cast<float>(code[d]) * line_scale[g] + line_zero[g]) * other[d];
      }
    } else if (format.mode == KVARN_PUBLISHED) {
      for (int d = 0; d < dim; ++d) {
        row[d] = (static_cast<float>(code[d]) * line_scale[d] + line_zero[d]) * other[g];
      }
    } else {
      for (int d = 0; d < dim; ++d) {
        row[d] = (static_cast<float>(code[d]) - centre) * line_scale[d] * other[g] + line_zero[d];
      }
    }
    for (int d = dim; d < stride; ++d) row[d] = 0.0F;
  }
  ActiveKernels().rotate(*rotation, work, group, stride, true);
  for (int g = 0; g < group; ++g) {
    const float* row = work + static_cast<ptrdiff_t>(g) * stride;
    float* out = rows + static_cast<ptrdiff_t>(g) * dim;
    if (layout.has_balance) {
      for (int d = 0; d < dim; ++d) out[d] = row[d] * inverse_balance[d];
    } else {
      std::memcpy(out, row, sizeof(float) * static_cast<size_t>(dim));
    }
  }
  return KVARN_OK;
}

}  // namespace

void SanitiseRow(const float* in, int head_dim, float* out, kvarn_counts* counts) {
  if (ActiveKernels().scale_row(in, nullptr, out, head_dim)) return;
  uint32_t not_finite = 0;
  uint32_t saturated = 0;
  for (int d = 0; d < head_dim; ++d) {  // branch-free, so that it vectorises
    const float x = in[d];
    not_finite |= (std::bit_cast<uint32_t>(x) & 0x7F800000U) == 0x7F800000U ? 1U : 0U;
    saturated += (std::bit_cast<uint32_t>(x) & 0x7FFFFFFFU) > 0x477FE000U ? 1U : 0U;  // 65504
    const float low = x < kHalfMax ? x : kHalfMax;
    out[d] = low > -kHalfMax ? low : -kHalfMax;
  }
  if (not_finite != 0) {
    for (int d = 0; d < head_dim; ++d) out[d] = 0.0F;
    saturated = 0;
  }
  if (counts == nullptr) return;
  counts->rows_zeroed += not_finite;
  counts->values_saturated += saturated;
}

kvarn_status EncodeRecord(const kvarn_format& format, const float* rows, int row_stride, int n_rows,
                          const int32_t* position, const int8_t* balance, uint8_t* record,
                          kvarn_counts* counts) {
  const int dim = format.head_dim;
  const auto load = [&](int g, const float* scale, float* row) {
    const float* from = rows + static_cast<ptrdiff_t>(g) * row_stride;
    if (ActiveKernels().scale_row(from, scale, row, dim)) return;
    SanitiseRow(from, dim, row, counts);
    for (int d = 0; d < dim && scale != nullptr; ++d) row[d] = row[d] * scale[d];
  };
  try {
    return Encode(format, load, n_rows, position, balance, record, counts);
  } catch (const std::bad_alloc&) {
    return KVARN_ERROR_MEMORY;
  }
}

kvarn_status EncodeExactTile(const kvarn_format& format, const uint16_t* tile, int n_rows,
                             const int32_t* position, const int8_t* balance, uint8_t* record,
                             kvarn_counts* counts) {
  const int dim = format.head_dim;
  const auto load = [&](int g, const float* scale, float* row) {
    const uint16_t* from = tile + static_cast<ptrdiff_t>(position[g]) * dim;
    ActiveKernels().scale_half_row(from, scale, row, dim);
  };
  try {
    const int32_t* placed = n_rows < format.group ? position : nullptr;
    return Encode(format, load, n_rows, placed, balance, record, counts);
  } catch (const std::bad_alloc&) {
    return KVARN_ERROR_MEMORY;
  }
}

kvarn_status DecodeRecord(const kvarn_format& format, const uint8_t* record, float* rows) {
  try {
    return Decode(format, record, rows);
  } catch (const std::bad_alloc&) {
    return KVARN_ERROR_MEMORY;
  }
}

kvarn_status ReorderRecord(const kvarn_format& from, const uint8_t* record, const kvarn_format& to,
                           uint8_t* out) {
  try {
    TileScratch& scratch = ThreadScratch();
    scratch.Reserve(from);
    const RecordLayout source = MakeRecordLayout(from);
    const RecordLayout target = MakeRecordLayout(to);
    UnpackCodes(from, record + source.codes, scratch.codes.data());
    ClearPadding(target, out);
    PackCodes(to, scratch.codes.data(), out + target.codes);
    const bool key = from.role == KVARN_KEY;
    const size_t tail_from = key ? source.scale : source.other;
    const size_t tail_to = key ? target.scale : target.other;
    const size_t tail =
        source.balance - tail_from + (source.has_balance ? static_cast<size_t>(from.head_dim) : 0);
    std::memcpy(out + tail_to, record + tail_from, tail);
    return KVARN_OK;
  } catch (const std::bad_alloc&) {
    return KVARN_ERROR_MEMORY;
  }
}

}  // namespace kvarn
