// SPDX-License-Identifier: Apache-2.0
#include "paged/query_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/dtype.h"
#include "format/record_layout.h"
#include "paged/rows.h"

namespace kvarn {

bool NeedsQuerySums(const kvarn_paged_step& step, int sequence) {
  return step.key_format.mode == KVARN_BALANCED && StepTokens(step, sequence) > 0 &&
         ComputedRows(step, sequence) < step.key_format.group;
}

QuerySums::QuerySums(const kvarn_paged_step& step, int sequence, int head, float* sums)
    : step_(step),
      sequence_(sequence),
      head_(head),
      position_(ComputedRows(step, sequence) - 1),
      sums_(sums) {
  const auto dim = static_cast<size_t>(step.key_format.head_dim);
  if (position_ < 0) {
    std::fill_n(sums, dim, 0.0F);
    return;
  }
  const size_t offset = static_cast<size_t>(head) * dim * sizeof(float);
  std::memcpy(sums, HistoryRow(step, sequence, position_) + offset, dim * sizeof(float));
}

bool QuerySums::Next() {
  const int end = std::min(step_.lengths[sequence_], step_.key_format.group);
  if (position_ + 1 >= end) return false;
  position_ += 1;
  const int dim = step_.key_format.head_dim;
  const int heads = step_.n_heads / step_.n_kv_heads;
  const int64_t token = step_.query_start[sequence_] + (position_ - ComputedRows(step_, sequence_));
  const uint8_t* query =
      static_cast<const uint8_t*>(step_.query) + token * step_.query_token_stride;
  float mean[kMaxHeadDim] = {};
  for (int h = 0; h < heads; ++h) {
    float row[kMaxHeadDim];
    RowToFloat(step_.dtype, query + (head_ * heads + h) * step_.query_head_stride, row, dim);
    for (int d = 0; d < dim; ++d) mean[d] += row[d] * row[d];
  }
  for (int d = 0; d < dim; ++d) {
    const float square = mean[d] / static_cast<float>(heads);
    if (std::isfinite(square)) sums_[d] += square;
  }
  return true;
}

}  // namespace kvarn
