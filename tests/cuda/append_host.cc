// SPDX-License-Identifier: Apache-2.0
#include "append_host.h"

#include <algorithm>
#include <cmath>

#include "kvarn/kvarn.h"
#include "sixteen_bit.h"

namespace kvarn_cuda_test {
namespace {

constexpr float kHalfTop = 65504.0F;

// docs/format.md section 1: interleaved partial sums, joined by halving.
float OrderedSum(const std::vector<float>& terms, size_t partials) {
  std::vector<float> sum(partials, 0.0F);
  for (size_t i = 0; i < terms.size(); ++i) sum[i % partials] += terms[i];
  for (size_t half = partials / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

std::vector<float> KeptValues(const std::vector<uint16_t>& row, int head, int dim,
                              kvarn_dtype dtype) {
  std::vector<float> values;
  for (const uint16_t bits : KeptRow(row, head, dim, dtype)) {
    values.push_back(std::clamp(ToFloat(bits, dtype), -kHalfTop, kHalfTop));
  }
  return values;
}

// rms over the query heads of a KV head, rounded to fp16; empty if it does not exist.
std::vector<float> QueryRms(const AppendShape& shape, const HostRow& row, int head) {
  std::vector<float> rms;
  for (int d = 0; d < shape.KeyDim(); ++d) {
    std::vector<float> squares;
    for (int h = 0; h < shape.heads_per_kv; ++h) {
      const int at = (head * shape.heads_per_kv + h) * shape.KeyDim() + d;
      const float q = ToFloat(row.query[static_cast<size_t>(at)], shape.dtype);
      squares.push_back(q * q);
    }
    const float x = std::sqrt(OrderedSum(squares, 32) / static_cast<float>(shape.heads_per_kv));
    if (!(x <= kHalfTop)) return {};
    rms.push_back(ToFloat(ToBits(x, KVARN_FP16), KVARN_FP16));
  }
  return rms;
}

std::vector<int8_t> HostBalance(const AppendShape& shape, const HostSequence& rows, int tile,
                                int head) {
  const int from = std::min(tile, shape.balance_tile);
  const auto dim = static_cast<size_t>(shape.KeyDim());
  std::vector<float> keys;
  std::vector<std::vector<float>> rms;
  for (int g = 0; g < shape.Group(); ++g) {
    const HostRow& row = rows[static_cast<size_t>(from * shape.Group() + g)];
    const std::vector<float> key = KeptValues(row.key, head, shape.KeyDim(), shape.dtype);
    keys.insert(keys.end(), key.begin(), key.end());
    if (!shape.queries) continue;
    std::vector<float> statistics = QueryRms(shape, row, head);
    if (!statistics.empty()) rms.push_back(std::move(statistics));
  }
  std::vector<float> query_ms(dim);
  for (size_t d = 0; d < dim && !rms.empty(); ++d) {
    std::vector<float> squares;
    for (const std::vector<float>& row : rms) squares.push_back(row[d] * row[d]);
    query_ms[d] = OrderedSum(squares, 8) / static_cast<float>(rms.size());
  }
  std::vector<int8_t> balance(dim);
  kvarn_balance(shape.KeyDim(), keys.data(), shape.Group(), rms.empty() ? nullptr : query_ms.data(),
                balance.data());
  return balance;
}

}  // namespace

HostRow MakeHostRow(const AppendShape& shape, std::mt19937* random) {
  std::normal_distribution<float> normal;
  const auto fill = [&](int count, bool spread) {
    std::vector<uint16_t> row(static_cast<size_t>(count));
    for (size_t i = 0; i < row.size(); ++i) {
      const float scale = spread ? std::exp2(static_cast<float>(i * 7 % 11) - 5.0F) : 1.0F;
      row[i] = ToBits(normal(*random) * scale + (i % 13 == 0 ? 3.0F : 0.0F), shape.dtype);
    }
    return row;
  };
  HostRow row;
  row.key = fill(shape.n_kv_heads * shape.KeyDim(), true);
  row.value = fill(shape.n_kv_heads * shape.ValueDim(), false);
  row.query = fill(shape.n_kv_heads * shape.heads_per_kv * shape.KeyDim(), true);
  const unsigned kind = (*random)() % 64;  // now and then something that is not finite
  if (kind == 0) row.key[row.key.size() / 2] = ToBits(INFINITY, shape.dtype);
  if (kind == 1) row.value[0] = ToBits(NAN, shape.dtype);
  if (kind == 2) row.query[0] = ToBits(NAN, shape.dtype);
  return row;
}

std::vector<uint16_t> KeptRow(const std::vector<uint16_t>& row, int head, int dim,
                              kvarn_dtype dtype) {
  const auto begin = row.begin() + static_cast<ptrdiff_t>(head) * dim;
  std::vector<uint16_t> kept(begin, begin + dim);
  const bool finite = std::all_of(
      kept.begin(), kept.end(), [&](uint16_t bits) { return std::isfinite(ToFloat(bits, dtype)); });
  if (!finite) std::fill(kept.begin(), kept.end(), uint16_t{0});
  return kept;
}

std::vector<uint8_t> HostRecord(const AppendShape& shape, const HostSequence& rows, int tile,
                                int head, bool key) {
  const kvarn_format& format = key ? shape.key : shape.value;
  std::vector<float> values;
  for (int g = 0; g < shape.Group(); ++g) {
    const HostRow& row = rows[static_cast<size_t>(tile * shape.Group() + g)];
    const std::vector<float> x =
        KeptValues(key ? row.key : row.value, head, format.head_dim, shape.dtype);
    values.insert(values.end(), x.begin(), x.end());
  }
  std::vector<int8_t> balance;
  if (key) balance = HostBalance(shape, rows, tile, head);
  std::vector<uint8_t> record(kvarn_record_bytes(&format));
  kvarn_encode(&format, values.data(), shape.Group(), nullptr, key ? balance.data() : nullptr,
               record.data(), nullptr);
  return record;
}

}  // namespace kvarn_cuda_test
