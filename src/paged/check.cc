// SPDX-License-Identifier: Apache-2.0
#include "attention/paged_work.h"
#include "paged/rows.h"
#include "paged/seal.h"

namespace kvarn {
namespace {

bool IsCpuRecord(const kvarn_format& format, kvarn_role role) {
  return IsLegal(format) && format.role == role && format.order == KVARN_ORDER_CPU;
}

bool HasPointers(const kvarn_paged_step& s) {
  return s.query_start != nullptr && s.lengths != nullptr && s.block_table != nullptr &&
         s.key_records != nullptr && s.value_records != nullptr && s.ring_pages != nullptr &&
         s.ring_table != nullptr && s.query != nullptr && s.keys != nullptr &&
         s.values != nullptr && s.out != nullptr;
}

bool HasLegalRing(const kvarn_paged_step& s) {
  return s.ring_rows >= s.key_format.group && s.ring_history >= 1 && s.n_ring_pages >= 1 &&
         s.ring_page_rows >= 1 && s.ring_table_stride >= s.n_ring_pages &&
         int64_t{s.n_ring_pages} * s.ring_page_rows >= int64_t{s.ring_rows} + s.ring_history;
}

}  // namespace

kvarn_status CheckPaged(const kvarn_paged_step& s) {
  if (!IsCpuRecord(s.key_format, KVARN_KEY) || !IsCpuRecord(s.value_format, KVARN_VALUE) ||
      s.key_format.group != s.value_format.group) {
    return KVARN_ERROR_FORMAT;
  }
  if (s.dtype != KVARN_FP16 && s.dtype != KVARN_BF16 && s.dtype != KVARN_FP32) {
    return KVARN_ERROR_ARGUMENT;
  }
  if (s.n_sequences < 0 || s.n_kv_heads < 1 || s.n_heads < 1 || s.n_heads % s.n_kv_heads != 0 ||
      !HasPointers(s) || !HasLegalRing(s) || !(s.softcap >= 0.0F)) {
    return KVARN_ERROR_ARGUMENT;
  }
  for (int i = 0; i < s.n_sequences; ++i) {
    const int64_t tokens = int64_t{s.query_start[i + 1]} - s.query_start[i];
    const int64_t tiles = (int64_t{s.lengths[i]} + s.key_format.group - 1) / s.key_format.group;
    if (s.query_start[i] < 0 || tokens < 0 || s.lengths[i] < tokens ||
        (tokens > 0 && tiles > s.block_table_stride)) {
      return KVARN_ERROR_ARGUMENT;
    }
  }
  int64_t rows = 0;
  const int64_t blocks = PagedWork(s).CountBlocks(&rows);
  return CheckBlocks(rows, blocks);
}

}  // namespace kvarn
