// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "format/dtype.h"
#include "format/record_layout.h"
#include "paged/query_sums.h"
#include "paged/rows.h"
#include "paged/seal.h"

namespace kvarn {
namespace {

// Rows that later rows of the step would replace at once are left out.
void StoreRows(const kvarn_paged_step& step, int sequence) {
  const int computed = ComputedRows(step, sequence);
  const int length = step.lengths[sequence];
  for (int position = std::max(computed, length - step.ring_rows); position < length; ++position) {
    uint8_t* to = RingRow(step, sequence, position % step.ring_rows);
    for (const kvarn_role role : {KVARN_KEY, KVARN_VALUE}) {
      const int dim = (role == KVARN_KEY ? step.key_format : step.value_format).head_dim;
      for (int head = 0; head < step.n_kv_heads; ++head) {
        std::memcpy(to + RingOffset(step, role, head),
                    ExactRow(step, sequence, role, head, position),
                    static_cast<size_t>(dim) * ElementBytes(step.dtype));
      }
    }
  }
}

void StoreQuerySums(const kvarn_paged_step& step, int sequence) {
  const auto dim = static_cast<size_t>(step.key_format.head_dim);
  for (int head = 0; head < step.n_kv_heads; ++head) {
    float row[kMaxHeadDim];
    QuerySums sums(step, sequence, head, row);
    while (sums.Next()) {
      uint8_t* to = HistoryRow(step, sequence, sums.Position());
      std::memcpy(to + static_cast<size_t>(head) * dim * sizeof(float), row, dim * sizeof(float));
    }
  }
}

}  // namespace

void StorePaged(const kvarn_paged_step& step, int thread, int n_threads) {
  for (int i = thread; i < step.n_sequences; i += n_threads) {
    if (StepTokens(step, i) == 0) continue;
    StoreRows(step, i);
    if (NeedsQuerySums(step, i)) StoreQuerySums(step, i);
  }
}

}  // namespace kvarn
