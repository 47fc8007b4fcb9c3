// SPDX-License-Identifier: Apache-2.0
//
// What a call should have given, in double precision, and how far roundings may take it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "attention_setup.h"
#include "reference/reference_attention.h"
#include "reference/reference_balance.h"
#include "reference/reference_hadamard.h"
#include "sixteen_bit.h"

namespace kvarn_cuda_test {
namespace {

// Root mean square of the relative error of rounding to 11 and to 8 bits.
constexpr double kHalfStep = 0x1p-11 / 1.7320508;
constexpr double kBf16Step = 0x1p-8 / 1.7320508;
// Independent roundings add up in squares; this many standard deviations are allowed.
constexpr double kDeviations = 6.0;
// Query rows of a prefill call that are compared, and positions that they see.
constexpr size_t kMostRows = 600;
constexpr size_t kMostPositions = 2'400'000;

}  // namespace

const AttentionSetup::HeadTile* AttentionSetup::RowAt(int sequence, int head, int position,
                                                      int last, std::vector<double>* key,
                                                      std::vector<double>* value) const {
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const int tile = position / case_.group;
  const bool sink = tile == 0 && s.sink_row >= 0 && case_.sink;
  const bool late = case_.seal_lag >= 0 && (tile + 1) * case_.group + case_.seal_lag <= last;
  const int place = case_.tile_table ? s.places[static_cast<size_t>(tile)] : 0;
  if (place == KVARN_CUDA_TILE_EMPTY) return nullptr;
  const bool record =
      case_.tile_table ? place == KVARN_CUDA_TILE_RECORD : (position < s.sealed || late) && !sink;
  if (record) {
    const HeadTile& from = Tile(sequence, tile, head);
    const int g = position % case_.group;
    key->assign(from.keys.begin() + g * case_.key_dim, from.keys.begin() + (g + 1) * case_.key_dim);
    value->assign(from.values.begin() + g * case_.value_dim,
                  from.values.begin() + (g + 1) * case_.value_dim);
    return &from;
  }
  const int start = s.length - s.n_tokens;
  const bool chunk = prefill_ && !case_.tile_table && position >= start;
  const int row =
      chunk              ? s.first_token + position - start
      : case_.tile_table ? sequence * plane_rows_ + place + position % case_.group
      : sink && s.sealed > 0
          ? s.sink_row + position
          : s.ring_base[static_cast<size_t>(tile) % s.ring_base.size()] + position % case_.group;
  const auto at = static_cast<size_t>(row * case_.n_kv_heads + head);
  const std::vector<uint16_t>& keys = chunk ? chunk_keys_ : exact_keys_;
  const std::vector<uint16_t>& values = chunk ? chunk_values_ : exact_values_;
  for (int d = 0; d < case_.key_dim; ++d) {
    key->push_back(ToFloat(keys[at * static_cast<size_t>(case_.key_dim) + static_cast<size_t>(d)],
                           case_.dtype));
  }
  for (int d = 0; d < case_.value_dim; ++d) {
    value->push_back(ToFloat(
        values[at * static_cast<size_t>(case_.value_dim) + static_cast<size_t>(d)], case_.dtype));
  }
  return nullptr;
}

// Roundings to fp16, in decode: q^ and q^ a for scores of records, weights and weights times a; in
// prefill: q^, code times a, the key; the weight, code times a plus z, the value. Of exact rows the
// weights are rounded to 16 bits. And the output to its type, and fp32 queries to fp16
// (query_noise, the variance of a logit).
double AttentionSetup::Bound(int sequence, int token, int head,
                             const std::vector<double>& probability,
                             const std::vector<std::vector<double>>& values,
                             const std::vector<const HeadTile*>& tile_of,
                             const std::vector<double>& query_noise,
                             const std::vector<double>& out) const {
  const std::vector<double>& dense = kvarn_reference::DenseHadamard(case_.key_dim);
  const auto dim = static_cast<size_t>(case_.key_dim);
  const size_t at =
      (static_cast<size_t>(sequences_[static_cast<size_t>(sequence)].first_token + token) *
           static_cast<size_t>(n_heads_) +
       static_cast<size_t>(head)) *
      dim;
  double square = 0.0;
  const HeadTile* rotated_for = nullptr;
  std::vector<double> q(dim);
  const double row_step = case_.dtype == KVARN_BF16 ? kBf16Step : kHalfStep;
  for (size_t x = 0; x < probability.size(); ++x) {
    if (probability[x] == 0.0) continue;
    double apart = 0.0;
    double size = 0.0;
    for (size_t d = 0; d < out.size(); ++d) {
      apart += (values[x][d] - out[d]) * (values[x][d] - out[d]);
      size += values[x][d] * values[x][d];
    }
    const HeadTile* tile = tile_of[x];
    double logit = query_noise[x];
    if (tile != nullptr) {
      if (tile != rotated_for) {
        rotated_for = tile;
        for (size_t d = 0; d < dim; ++d) {
          q[d] = 0.0;
          for (size_t i = 0; i < dim; ++i) {
            q[d] += query_[at + i] / kvarn_reference::BalanceFactor(tile->balance[i]) *
                    dense[i * dim + d];
          }
        }
      }
      const size_t g = x % static_cast<size_t>(case_.group);
      for (size_t d = 0; d < dim; ++d) {
        const double term = q[d] * tile->key_size[g * dim + d] * call_.scale * kHalfStep;
        logit += (prefill_ ? 3.0 : 2.0) * term * term;
      }
    }
    const double weight_step = tile != nullptr ? kHalfStep : row_step;
    const double roundings = prefill_ && tile != nullptr ? 3.0 : 2.0;
    square += probability[x] * probability[x] *
              (logit * apart + roundings * weight_step * weight_step * size);
  }
  double norm = 0.0;
  for (const double o : out) norm += o * o;
  if (!case_.float_queries) square += row_step * row_step * norm;
  // Denormal outputs and the fp32 sums themselves.
  return kDeviations * std::sqrt(square) + 1e-5 * std::sqrt(norm) +
         (case_.dtype == KVARN_FP16 && !case_.float_queries
              ? 0x1p-25 * std::sqrt(static_cast<double>(out.size()))
              : 0.0);
}

void AttentionSetup::CompareRow(int sequence, int token, int head, const std::vector<float>& got,
                                Errors* errors) const {
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const int last = case_.tile_table ? s.length - 1 : s.length - s.n_tokens + token;
  const int kv_head = head / case_.heads_per_kv;
  const auto dim = static_cast<size_t>(case_.key_dim);
  const size_t row = static_cast<size_t>(s.first_token + token) * static_cast<size_t>(n_heads_) +
                     static_cast<size_t>(head);
  const double slope =
      kvarn_reference::AlibiSlope(static_cast<double>(case_.max_bias), n_heads_, head);
  std::vector<double> logits;
  std::vector<std::vector<double>> values;
  std::vector<const HeadTile*> tile_of;
  std::vector<double> query_noise;
  double top = case_.sink_logits ? sinks_[static_cast<size_t>(head)]
                                 : -std::numeric_limits<double>::infinity();
  for (int x = 0; x <= last; ++x) {
    std::vector<double> key;
    std::vector<double> value;
    tile_of.push_back(RowAt(sequence, kv_head, x, last, &key, &value));
    const bool takes_part = !key.empty();
    key.resize(dim);
    value.resize(static_cast<size_t>(case_.value_dim));
    double logit = 0.0;
    double noise = 0.0;
    for (size_t d = 0; d < dim; ++d) {
      const double term = query_[row * dim + d] * key[d];
      logit += term;
      noise += term * term;
    }
    logit *= call_.scale;
    noise *= call_.scale * call_.scale * kHalfStep * kHalfStep;
    query_noise.push_back(case_.float_queries ? noise : 0.0);
    if (case_.softcap > 0.0F) logit = case_.softcap * std::tanh(logit / case_.softcap);
    if (case_.mask) {
      logit += slope * HalfToDouble(mask_[static_cast<size_t>(s.first_token + token) *
                                              static_cast<size_t>(call_.mask_token_stride / 2) +
                                          static_cast<size_t>(x)]);
    } else if (case_.max_bias > 0.0F) {
      logit += slope * (x - last);
    }
    if (!takes_part || (case_.window > 0 && x <= last - case_.window)) {
      logit = -std::numeric_limits<double>::infinity();
    }
    top = std::max(top, logit);
    logits.push_back(logit);
    values.push_back(std::move(value));
  }
  std::vector<double> out(static_cast<size_t>(case_.value_dim));
  if (top > -std::numeric_limits<double>::infinity()) {
    double sum = case_.sink_logits ? std::exp(sinks_[static_cast<size_t>(head)] - top) : 0.0;
    for (double& x : logits) sum += x = std::exp(x - top);
    for (size_t x = 0; x < logits.size(); ++x) {
      logits[x] /= sum;
      for (size_t d = 0; d < out.size(); ++d) out[d] += logits[x] * values[x][d];
    }
  } else {
    std::fill(logits.begin(), logits.end(), 0.0);
  }
  double error = 0.0;
  double norm = 0.0;
  for (size_t d = 0; d < out.size(); ++d) {
    const double x = got[row * out.size() + d] - out[d];
    error += x * x;
    norm += out[d] * out[d];
  }
  const double bound = Bound(sequence, token, head, logits, values, tile_of, query_noise, out);
  const double share = error == 0.0 ? 0.0 : std::sqrt(error) / bound;  // rows that see nothing
  errors->worst_share = share <= errors->worst_share ? errors->worst_share : share;  // NaN stays
  if (norm > 0.0)
    errors->worst_relative = std::max(errors->worst_relative, std::sqrt(error / norm));
}

Errors AttentionSetup::Compare() {
  const std::vector<float> got = Outputs();
  struct Row {
    int sequence, token, head;
  };
  std::vector<Row> rows;
  for (int sequence = 0; sequence < call_.n_sequences; ++sequence) {
    for (int token = 0; token < sequences_[static_cast<size_t>(sequence)].n_tokens; ++token) {
      for (int head = 0; head < n_heads_; ++head) rows.push_back({sequence, token, head});
    }
  }
  // Of many rows a random part: the double precision takes its time.
  std::shuffle(rows.begin(), rows.end(), std::mt19937(1));
  if (prefill_) {
    const int longest = *std::max_element(case_.lengths.begin(), case_.lengths.end());
    const size_t most =
        std::min(kMostRows, kMostPositions / static_cast<size_t>(std::max(longest, 1)));
    rows.resize(std::min(rows.size(), most));
  }
  const int n_rows = static_cast<int>(rows.size());
  const int n_threads = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  std::vector<Errors> found(static_cast<size_t>(n_threads));
  std::vector<std::thread> threads;
  for (int t = 0; t < n_threads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < n_rows; i += n_threads) {
        const Row& row = rows[static_cast<size_t>(i)];
        CompareRow(row.sequence, row.token, row.head, got, &found[static_cast<size_t>(t)]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Errors errors;
  for (const Errors& f : found) {
    errors.worst_relative = std::max(errors.worst_relative, f.worst_relative);
    errors.worst_share = f.worst_share <= errors.worst_share ? errors.worst_share : f.worst_share;
  }
  for (const float x : got) {
    if (!std::isfinite(x)) errors.worst_share = NAN;
  }
  return errors;
}

}  // namespace kvarn_cuda_test
