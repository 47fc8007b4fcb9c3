// SPDX-License-Identifier: Apache-2.0
#include "support/attention_bound.h"

#include <algorithm>
#include <cmath>

#include "cache/plane.h"
#include "reference/reference_hadamard.h"
#include "reference/reference_half.h"
#include "support/plane_peek.h"

namespace kvarn_test {
namespace {

using kvarn_reference::HalfToDouble;

constexpr double kEpsilon = 0x1p-24;
// Half a step of the integer weights; the product that is rounded is itself off by 2^-23.
constexpr double kHalfStep = 0.502 / 16256.0;

std::vector<double> Doubles(const std::vector<uint16_t>& halves) {
  std::vector<double> out;
  for (const uint16_t half : halves) out.push_back(HalfToDouble(half));
  return out;
}

// Roundings of one row through the rotation, as in rotation_test.cc.
double RotationSteps(int dim) {
  const kvarn_reference::Hadamard& h = kvarn_reference::FindHadamard(dim);
  return std::log2(h.block) + h.order + 2;
}

double Norm(const double* x, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

}  // namespace

AttentionBound::AttentionBound(const AttentionSetup& setup)
    : setup_(setup),
      problem_(setup.Problem()),
      group_(setup.KeyPlane()->Group()),
      key_q_((1 << setup.KeyPlane()->config.format.bits) - 1),
      value_q_((1 << setup.ValuePlane()->config.format.bits) - 1),
      balanced_(setup.KeyPlane()->config.format.mode == KVARN_BALANCED) {
  for (int i = 0; i < problem_.n_streams * problem_.n_kv_heads; ++i) {
    Pair pair;
    for (int tile = 0; tile * group_ < problem_.n_rows; ++tile) {
      AddKeyTile(setup.KeyPlane(), setup.Keys(i), tile, &pair);
      AddValueTile(setup.ValuePlane(), setup.Values(i), tile, &pair);
    }
    for (int row = 0; row < problem_.n_rows; ++row) {
      pair.value_norm.push_back(Norm(problem_.values[static_cast<size_t>(i)].data() +
                                         static_cast<ptrdiff_t>(row) * problem_.value_dim,
                                     problem_.value_dim));
    }
    pairs_.push_back(std::move(pair));
  }
}

void AttentionBound::AddKeyTile(const kvarn_plane* plane, const uint8_t* memory, int tile,
                                Pair* pair) const {
  KeyTile& made = pair->keys.emplace_back();
  made.sealed = PeekState(plane, memory, tile) == TileIs::kSealed;
  if (!made.sealed) return;
  const kvarn_reference::Record record = PeekRecord(plane, memory, tile);
  made.scale = Doubles(record.scale);
  made.zero = Doubles(record.zero);
  made.token = Doubles(record.other);
  made.balance = record.balance;
  const double middle = balanced_ ? key_q_ / 2.0 : 0.0;
  for (int g = 0; g < group_; ++g) {
    double codes = 0.0;
    double squares = 0.0;
    for (int d = 0; d < problem_.key_dim; ++d) {
      const auto at = static_cast<size_t>(d);
      const double code = std::fabs(record.CodeAt(d, g) - middle);
      const double t = made.token[static_cast<size_t>(g)];
      const double x = balanced_ ? code * made.scale[at] * t + std::fabs(made.zero[at])
                                 : (code * made.scale[at] + std::fabs(made.zero[at])) * t;
      codes += code;
      squares += x * x;
    }
    made.codes.push_back(codes);
    made.magnitude.push_back(std::sqrt(squares));
  }
}

void AttentionBound::AddValueTile(const kvarn_plane* plane, const uint8_t* memory, int tile,
                                  Pair* pair) const {
  ValueTile& made = pair->values.emplace_back();
  made.sealed = PeekState(plane, memory, tile) == TileIs::kSealed;
  if (!made.sealed) return;
  const kvarn_reference::Record record = PeekRecord(plane, memory, tile);
  made.scale = Doubles(record.scale);
  made.zero = Doubles(record.zero);
  double squares = 0.0;
  double channels = 0.0;
  for (int d = 0; d < problem_.value_dim; ++d) {
    const double c = HalfToDouble(record.other[static_cast<size_t>(d)]);
    double sum = 0.0;
    for (int g = 0; g < group_; ++g) sum += record.CodeAt(d, g);
    squares += c * c * sum * sum;
    channels += c * c;
  }
  made.codes = std::sqrt(squares);
  made.channels = std::sqrt(channels);
}

std::vector<double> AttentionBound::LogitErrors(const Pair& pair, int stream, int token, int head,
                                                const kvarn_reference::AttentionRow& row) const {
  const int dim = problem_.key_dim;
  const auto width = static_cast<size_t>(dim);
  const size_t query_row =
      static_cast<size_t>((stream * problem_.n_tokens + token) * problem_.n_heads + head);
  const float* query = problem_.query.data() + query_row * width;
  const int kv_head = head / (problem_.n_heads / problem_.n_kv_heads);
  const std::vector<double>& keys =
      problem_.keys[static_cast<size_t>(stream * problem_.n_kv_heads + kv_head)];
  const std::vector<double>& h = kvarn_reference::DenseHadamard(dim);
  std::vector<double> rotated;
  std::vector<int8_t> rotated_balance;
  double balanced_norm = 0.0;
  double top = -HUGE_VAL;
  for (const double logit : row.logit) top = std::fmax(top, logit);

  std::vector<double> errors;
  for (size_t tile = 0; tile < pair.keys.size(); ++tile) {
    const KeyTile& key = pair.keys[tile];
    double largest = 0.0, sum_weights = 0.0, sum_zero = 0.0;
    if (key.sealed) {
      if (rotated.empty() || rotated_balance != key.balance) {
        rotated_balance = key.balance;
        std::vector<double> q(width);
        for (size_t d = 0; d < width; ++d) {
          const double s = key.balance.empty() ? 1.0 : std::exp2(key.balance[d] / 8.0);
          q[d] = problem_.scale * static_cast<double>(query[d]) / s;
        }
        balanced_norm = Norm(q.data(), dim);
        rotated.assign(width, 0.0);
        for (size_t i = 0; i < width; ++i) {
          for (size_t d = 0; d < width; ++d) rotated[d] += q[i] * h[i * width + d];
        }
      }
      for (size_t d = 0; d < width; ++d) {
        const double weight = std::fabs(rotated[d] * key.scale[d]);
        largest = std::max(largest, weight);
        sum_weights += weight;
        sum_zero += std::fabs(rotated[d] * key.zero[d]);
      }
    }
    for (size_t g = 0; g < static_cast<size_t>(group_); ++g) {
      const size_t at = tile * static_cast<size_t>(group_) + g;
      if (at >= row.logit.size()) break;
      double error = 0.0;
      double raw = 0.0;  // what the logit cannot exceed before soft-cap and mask
      if (key.sealed) {
        const double t = key.token[g];
        raw = t * key_q_ * sum_weights + sum_zero * (balanced_ ? 1.0 : t);
        error = t * kHalfStep * largest * key.codes[g];
        error += kEpsilon * (RotationSteps(dim) + 2) * balanced_norm * key.magnitude[g];
        error += kEpsilon * t * 6 * key_q_ * sum_weights;
        error += kEpsilon * (dim / 32 + 8) * sum_zero * (balanced_ ? 1.0 : t);
      } else {
        double products = 0.0;
        for (size_t d = 0; d < width; ++d) {
          products += std::fabs(static_cast<double>(query[d]) * keys[at * width + d]);
        }
        raw = problem_.scale * products;
        error = kEpsilon * (dim + 3) * raw;
      }
      // tanh and its division, slope (a power of up to n_heads) times mask, the sums, exp's
      // argument (relative to a reference that may lie 2 below the maximum).
      const double logit = row.logit[at];
      if (std::isinf(logit)) {
        errors.push_back(0.0);
        continue;
      }
      error += 4 * kEpsilon * problem_.softcap;
      if (!problem_.mask.empty()) {
        error += 2 * kEpsilon * (problem_.max_bias > 0.0 ? problem_.n_heads + 4 : 1) *
                 (std::fabs(logit) + raw);
      }
      error += kEpsilon * (2 * std::fabs(logit) + std::fabs(top) + 2) + 4e-7;
      errors.push_back(error);
    }
  }
  return errors;
}

double AttentionBound::OfRow(int stream, int token, int head,
                             const kvarn_reference::AttentionRow& row) {
  const int kv_head = head / (problem_.n_heads / problem_.n_kv_heads);
  const Pair& pair = pairs_[static_cast<size_t>(stream * problem_.n_kv_heads + kv_head)];
  const std::vector<double> errors = LogitErrors(pair, stream, token, head, row);
  const auto tiles = static_cast<double>(pair.keys.size());
  const double out_norm = Norm(row.out.data(), problem_.value_dim);

  double grown = 1.0;  // sum of p exp(e), the sink's share included
  double mean_norm = 0.0;
  for (size_t i = 0; i < errors.size(); ++i) {
    grown += row.probability[i] * std::expm1(errors[i]);
    mean_norm += row.probability[i] * pair.value_norm[i];
  }
  double bound = 0.0;
  for (size_t i = 0; i < errors.size(); ++i) {
    bound +=
        row.probability[i] * (std::exp(errors[i]) * grown - 1.0) * (pair.value_norm[i] + out_norm);
  }
  for (size_t tile = 0; tile < pair.values.size(); ++tile) {
    const ValueTile& value = pair.values[tile];
    if (!value.sealed) continue;
    double largest = 0.0, sum = 0.0;
    for (size_t g = 0; g < static_cast<size_t>(group_); ++g) {
      const size_t at = tile * static_cast<size_t>(group_) + g;
      if (at >= errors.size()) break;
      const double weight = row.probability[at] * value.scale[g];
      largest = std::max(largest, weight);
      sum += weight * value_q_ + row.probability[at] * std::fabs(value.zero[g]);
    }
    bound += kHalfStep * largest * value.codes;
    bound += kEpsilon * (tiles + 20) * sum * value.channels;
  }
  // Each tile may rescale what came before; exact tiles add a row at a time; then the rotation
  // back.
  bound += (tiles * 6e-7 + 1e-6) * (mean_norm + out_norm);
  bound += kEpsilon * (group_ + tiles + RotationSteps(problem_.value_dim) + 8) * mean_norm;
  return bound + 1e-25;
}

}  // namespace kvarn_test
