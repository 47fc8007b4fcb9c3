// SPDX-License-Identifier: Apache-2.0
#include "reference_balance.h"

#include <cmath>

#include "reference_arithmetic.h"

namespace kvarn_reference {
namespace {

float Log2(float x) {
  int k = 0;
  float mant = std::frexp(x, &k);  // [1/2, 1)
  if (mant < 0.70710678118654752F) {
    mant = mant * 2.0F;
    k -= 1;
  }
  const float u = (mant - 1.0F) / (mant + 1.0F);
  const float u2 = u * u;
  float p = 1.0F / 9.0F;
  p = p * u2 + 1.0F / 7.0F;
  p = p * u2 + 1.0F / 5.0F;
  p = p * u2 + 1.0F / 3.0F;
  p = p * u2 + 1.0F;
  return static_cast<float>(k) + 2.88539008F * u * p;
}

// x + a thousandth of its mean + a floor.
std::vector<float> Raised(const std::vector<float>& x) {
  const auto n = static_cast<int>(x.size());
  const float mean = ChannelMean(n, [&](int d) { return x[static_cast<size_t>(d)]; });
  std::vector<float> out;
  for (const float value : x) out.push_back((value + 1e-3F * mean) + 1e-12F);
  return out;
}

}  // namespace

std::vector<int8_t> Balance(int head_dim, const float* keys, int n_rows, const float* query_ms) {
  const auto dim = static_cast<size_t>(head_dim);
  std::vector<float> v(dim);
  for (size_t d = 0; d < dim; ++d) {
    const auto key = [&](int g) { return keys[static_cast<size_t>(g) * dim + d]; };
    const float mean = TokenMean(n_rows, key);
    v[d] = TokenMean(n_rows, [&](int g) {
      const float off = key(g) - mean;
      return off * off;
    });
  }
  v = Raised(v);
  // "w = 1 where no query is known" is read as the raw w: it is raised like any other.
  std::vector<float> w(dim, 1.0F);
  if (query_ms != nullptr) w.assign(query_ms, query_ms + dim);
  w = Raised(w);
  std::vector<float> l(dim);
  for (size_t d = 0; d < dim; ++d) l[d] = (Log2(w[d]) - Log2(v[d])) * 0.25F;
  const float mean = ChannelMean(head_dim, [&](int d) { return l[static_cast<size_t>(d)]; });
  std::vector<int8_t> e(dim);
  for (size_t d = 0; d < dim; ++d) {
    e[d] = static_cast<int8_t>(Clamp(std::nearbyintf((l[d] - mean) * 8.0F), -127.0F, 127.0F));
  }
  return e;
}

float BalanceFactor(int exponent) { return static_cast<float>(std::exp2(exponent / 8.0)); }

}  // namespace kvarn_reference
