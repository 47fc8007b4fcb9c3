// SPDX-License-Identifier: Apache-2.0
#include "codec/balance.h"

#include <bit>
#include <cstring>

#include "codec/balance_terms.h"
#include "codec/ordered_sum.h"
#include "format/record_layout.h"

namespace kvarn {
namespace {

float RoundToEven(float x) {  // |x| < 2^22
  return (x + 12582912.0F) - 12582912.0F;
}

}  // namespace

void ComputeBalance(int head_dim, const float* keys, int row_stride, int n_rows,
                    const float* query_ms, int8_t* balance) {
  float variance[kMaxHeadDim];
  float query[kMaxHeadDim];
  float level[kMaxHeadDim];
  const float n = static_cast<float>(n_rows);
  for (int d = 0; d < head_dim; ++d) {
    const float mean = TokenSum(n_rows, [&](int g) { return keys[g * row_stride + d]; }) / n;
    variance[d] = TokenSum(n_rows,
                           [&](int g) {
                             const float centred = keys[g * row_stride + d] - mean;
                             return centred * centred;
                           }) /
                  n;
    query[d] = query_ms != nullptr ? query_ms[d] : 1.0F;
  }
  const float dim = static_cast<float>(head_dim);
  const float mean_variance = ChannelSum(head_dim, [&](int d) { return variance[d]; }) / dim;
  const float mean_query = ChannelSum(head_dim, [&](int d) { return query[d]; }) / dim;
  for (int d = 0; d < head_dim; ++d) {
    const float v = Floored(variance[d], mean_variance);
    const float w = Floored(query[d], mean_query);
    level[d] = (Log2(w) - Log2(v)) * 0.25F;
  }
  const float mean_level = ChannelSum(head_dim, [&](int d) { return level[d]; }) / dim;
  for (int d = 0; d < head_dim; ++d) {
    float eighths = RoundToEven((level[d] - mean_level) * 8.0F);
    eighths = eighths < -127.0F ? -127.0F : eighths;
    eighths = eighths > 127.0F ? 127.0F : eighths;
    balance[d] = static_cast<int8_t>(eighths);
  }
}

float BalanceScale(int exponent) {
  // 2^(i/8) rounded to fp32.
  static constexpr float kEighth[8] = {1.0F,
                                       1.0905077326652577F,
                                       1.1892071150027210F,
                                       1.2968395546510096F,
                                       1.4142135623730951F,
                                       1.5422108254079407F,
                                       1.6817928305074290F,
                                       1.8340080864093424F};
  const int octave = exponent >> 3;  // floor
  const float power = std::bit_cast<float>(static_cast<uint32_t>(octave + 127) << 23);
  return kEighth[exponent & 7] * power;
}

}  // namespace kvarn
