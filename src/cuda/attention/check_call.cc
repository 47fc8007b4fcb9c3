// SPDX-License-Identifier: Apache-2.0
#include "cuda/attention/check_call.h"

#include "cuda/attention/shape.h"
#include "cuda/common/check.h"

namespace kvarn::cuda {

namespace {

bool TypesAgree(const kvarn_cuda_decode& c) {
  return c.query_dtype == c.dtype ||
         (HasFloatQueries(c) && HasTileTable(c) && c.dtype == KVARN_FP16);
}

bool RowsAreFound(const kvarn_cuda_decode& c) {
  if (!HasTileTable(c)) {
    const int64_t strides = c.key_sequence_stride | c.value_sequence_stride |
                            c.exact_key_sequence_stride | c.exact_value_sequence_stride;
    return c.ring_rows > 0 && c.ring_rows % c.key_format.group == 0 && strides == 0 &&
           c.mask_map == nullptr;
  }
  if (c.mask_map != nullptr && (c.mask == nullptr || c.mask_map_stride <= 0)) return false;
  return c.tile_table_stride > 0 && c.window == 0 && (c.max_bias == 0.0F || c.mask != nullptr);
}

}  // namespace

kvarn_status CheckCall(const kvarn_cuda_decode& c) {
  if (!IsCudaRecord(c.key_format, KVARN_KEY) || !IsCudaRecord(c.value_format, KVARN_VALUE) ||
      c.key_format.group != c.value_format.group) {
    return KVARN_ERROR_FORMAT;
  }
  if ((c.dtype != KVARN_FP16 && c.dtype != KVARN_BF16) || c.n_sequences < 0 || c.n_tokens < 1 ||
      c.n_kv_heads < 1 || c.n_heads < c.n_kv_heads || c.n_heads % c.n_kv_heads != 0 ||
      c.block_table_stride < 0 || !(c.scale > 0.0F) || !(c.softcap >= 0.0F) || c.window < 0 ||
      !(c.max_bias >= 0.0F)) {
    return KVARN_ERROR_ARGUMENT;
  }
  return TypesAgree(c) && RowsAreFound(c) ? KVARN_OK : KVARN_ERROR_ARGUMENT;
}

kvarn_status CheckCallPointers(const kvarn_cuda_decode& c) {
  if (c.n_sequences == 0) return KVARN_OK;
  const bool present = c.key_records != nullptr && c.value_records != nullptr &&
                       c.exact_keys != nullptr && c.exact_values != nullptr &&
                       c.lengths != nullptr && c.query != nullptr && c.out != nullptr;
  const bool found = HasTileTable(c) || (c.block_table != nullptr && c.sealed_rows != nullptr &&
                                         c.ring_base != nullptr);
  const int64_t cache = c.key_block_stride | c.key_head_stride | c.value_block_stride |
                        c.value_head_stride | c.exact_key_row_stride | c.exact_key_head_stride |
                        c.exact_value_row_stride | c.exact_value_head_stride |
                        c.key_sequence_stride | c.value_sequence_stride |
                        c.exact_key_sequence_stride | c.exact_value_sequence_stride;
  const int64_t rows = c.query_sequence_stride | c.query_token_stride | c.query_head_stride |
                       c.out_sequence_stride | c.out_token_stride | c.out_head_stride;
  const size_t row = HasFloatQueries(c) ? 16 : 8;
  const bool aligned = cache % 16 == 0 && rows % static_cast<int64_t>(row) == 0 &&
                       Aligned(c.key_records, 16) && Aligned(c.value_records, 16) &&
                       Aligned(c.exact_keys, 16) && Aligned(c.exact_values, 16) &&
                       Aligned(c.query, row) && Aligned(c.out, row);
  const bool chunks = HasTileTable(c) || c.ring_base_stride >= c.ring_rows / c.key_format.group;
  return present && found && aligned && chunks ? KVARN_OK : KVARN_ERROR_ARGUMENT;
}

}  // namespace kvarn::cuda
