// SPDX-License-Identifier: Apache-2.0
#include "reference_attention.h"

#include <bit>
#include <cmath>
#include <cstddef>

#include "reference_half.h"

namespace kvarn_reference {
namespace {

double MaskAt(const AttentionProblem& p, int stream, int token, int head, int row) {
  if (p.mask.empty()) return 0.0;
  const int plane = (stream % p.mask_streams) * p.mask_heads + head % p.mask_heads;
  const size_t line = static_cast<size_t>(plane * p.n_tokens + token);
  return HalfToDouble(p.mask[line * static_cast<size_t>(p.n_rows) + static_cast<size_t>(row)]);
}

double Dot(const float* a, const double* b, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

double AlibiSlope(double max_bias, int n_heads, int head) {
  if (max_bias == 0.0) return 1.0;
  // The geometric sequence of the largest power of two; the heads beyond it take every second
  // member, from the first, of the sequence twice as long.
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n_heads)));
  if (head < power) return std::exp2(-max_bias * (head + 1) / power);
  return std::exp2(-max_bias * (2 * (head - power) + 1) / (2.0 * power));
}

AttentionRow AttendRow(const AttentionProblem& p, int stream, int token, int head) {
  const int kv_head = head / (p.n_heads / p.n_kv_heads);
  const auto pair = static_cast<size_t>(stream * p.n_kv_heads + kv_head);
  const size_t query_row = static_cast<size_t>((stream * p.n_tokens + token) * p.n_heads + head);
  const float* query = p.query.data() + query_row * static_cast<size_t>(p.key_dim);
  const double slope = AlibiSlope(p.max_bias, p.n_heads, head);

  AttentionRow result;
  result.out.assign(static_cast<size_t>(p.value_dim), 0.0);
  double top = -HUGE_VAL;
  for (int i = 0; i < p.n_rows; ++i) {
    const double mask = MaskAt(p, stream, token, head, i);
    double logit = -HUGE_VAL;
    if (mask != -HUGE_VAL) {
      logit = p.scale *
              Dot(query, p.keys[pair].data() + static_cast<ptrdiff_t>(i) * p.key_dim, p.key_dim);
      if (p.softcap != 0.0) logit = p.softcap * std::tanh(logit / p.softcap);
      logit += slope * mask;
    }
    result.logit.push_back(logit);
    top = std::fmax(top, logit);
  }
  result.probability.assign(static_cast<size_t>(p.n_rows), 0.0);
  if (top == -HUGE_VAL) return result;
  double sum = 0.0;
  if (!p.sinks.empty()) {
    const double sink = p.sinks[static_cast<size_t>(head)];
    top = std::fmax(top, sink);
    sum = std::exp(sink - top);
  }
  for (const double logit : result.logit) sum += std::exp(logit - top);
  for (int i = 0; i < p.n_rows; ++i) {
    const auto at = static_cast<size_t>(i);
    const double share = std::exp(result.logit[at] - top) / sum;
    result.probability[at] = share;
    const double* value = p.values[pair].data() + static_cast<ptrdiff_t>(i) * p.value_dim;
    for (int d = 0; d < p.value_dim; ++d) result.out[static_cast<size_t>(d)] += share * value[d];
  }
  return result;
}

}  // namespace kvarn_reference
