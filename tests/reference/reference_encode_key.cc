// SPDX-License-Identifier: Apache-2.0
//
// docs/format.md section 5.
#include <algorithm>
#include <cmath>

#include "reference_arithmetic.h"
#include "reference_encoder.h"
#include "reference_half.h"

namespace kvarn_reference::internal {
namespace {

using Floats = std::vector<float>;

float TokenDeviation(int n, const Floats& y) {
  const float mean = TokenMean(n, [&](int g) { return y[static_cast<size_t>(g)]; });
  const float square =
      TokenMean(n, [&](int g) { return y[static_cast<size_t>(g)] * y[static_cast<size_t>(g)]; });
  return Deviation(square, mean);
}

// t[g] = clamp(std over channels of U * wc).
Floats TokenScales(const Tile& u, const Floats& wc) {
  Floats t;
  for (int g = 0; g < u.n; ++g) {
    const auto y = [&](int d) { return u.At(g, d) * wc[static_cast<size_t>(d)]; };
    const float mean = ChannelMean(u.dim, y);
    const float square = ChannelMean(u.dim, [&](int d) { return y(d) * y(d); });
    t.push_back(Clamp(Deviation(square, mean), 0.125F, 8.0F));
  }
  return t;
}

// wc[d] = i0 / clamp(std over tokens of U * (i0 / t)).
Floats ChannelWeights(const Tile& u, const Floats& t, float i0) {
  Floats wc;
  Floats y(static_cast<size_t>(u.n));
  for (int d = 0; d < u.dim; ++d) {
    for (int g = 0; g < u.n; ++g) {
      const float wt = i0 / t[static_cast<size_t>(g)];
      y[static_cast<size_t>(g)] = u.At(g, d) * wt;
    }
    wc.push_back(i0 / Clamp(TokenDeviation(u.n, y), 0.125F, 8.0F));
  }
  return wc;
}

// One channel on its way to a, z and its codes. Everything is indexed by token.
class Channel {
 public:
  Channel(int n, int bits, Floats x, float m, const Floats& t, const Floats& it)
      : n_(n), bits_(bits), x_(std::move(x)), t_(t), it_(it), m_(m) {}

  void Fit(uint64_t* saturated);

  float a = 0.0F;
  uint16_t stored_z = 0;
  Floats e;      // X - z
  Floats codes;  // final

 private:
  float X(int g) const { return x_[static_cast<size_t>(g)]; }
  float T(int g) const { return t_[static_cast<size_t>(g)]; }
  float Y(int g) const { return (X(g) - m_) * it_[static_cast<size_t>(g)]; }
  float LargestY() const;
  void FirstStep();
  void SearchStep(float largest_step);
  void Quantise(float z);
  void Refit(float* z);
  void ApplyGain();

  int n_;
  int bits_;
  Floats x_;
  const Floats& t_;
  const Floats& it_;
  float m_;
};

float Channel::LargestY() const {
  float largest = 0.0F;
  for (int g = 0; g < n_; ++g) largest = Max(largest, std::fabs(Y(g)));
  return largest;
}

void Channel::FirstStep() {
  const auto q = static_cast<float>((1 << bits_) - 1);
  if (bits_ == 2) {
    const float square = TokenMean(n_, [&](int g) { return Y(g) * Y(g); });
    a = Min(0.9957F * std::sqrt(square), 2.0F * LargestY() / 3.0F);
    return;
  }
  for (int round = 0; round < 3; ++round) {
    float low = Y(0);
    float high = Y(0);
    for (int g = 1; g < n_; ++g) {
      low = Min(low, Y(g));
      high = Max(high, Y(g));
    }
    float it_low = 0.0F;  // of several tokens with the same extreme, the largest counts
    float it_high = 0.0F;
    for (int g = 0; g < n_; ++g) {
      const float it = it_[static_cast<size_t>(g)];
      if (Y(g) == low) it_low = std::max(it_low, it);
      if (Y(g) == high) it_high = std::max(it_high, it);
    }
    m_ = m_ + (low + high) / (it_low + it_high);
  }
  SearchStep(2.0F * LargestY() / q);
}

void Channel::SearchStep(float largest_step) {
  const auto q = static_cast<float>((1 << bits_) - 1);
  const float half = q / 2.0F;
  float least = HUGE_VALF;
  for (const float factor : StepFactors(bits_)) {
    const float step = largest_step * factor;
    const float inverse = Inverse(step);
    const float error = TokenSum(n_, [&](int g) {
      const float y = Y(g);
      const float c = Code(y * inverse + half, q);
      const float off = (y - (c - half) * step) * T(g);
      return off * off;
    });
    if (error < least) {
      least = error;
      a = step;
    }
  }
}

void Channel::Quantise(float z) {
  const auto q = static_cast<float>((1 << bits_) - 1);
  const float inverse = Inverse(a);
  for (int g = 0; g < n_; ++g) {
    const auto at = static_cast<size_t>(g);
    e[at] = X(g) - z;
    codes[at] = Code(e[at] * it_[at] * inverse + q / 2.0F, q);
  }
}

void Channel::Refit(float* z) {
  const float half = static_cast<float>((1 << bits_) - 1) / 2.0F;
  const auto error = [&](int g) { return e[static_cast<size_t>(g)]; };
  const auto basis = [&](int g) { return (codes[static_cast<size_t>(g)] - half) * T(g); };
  const float mean_e = TokenMean(n_, error);
  const float mean_b = TokenMean(n_, basis);
  const float cov = TokenMean(n_, [&](int g) { return error(g) * basis(g); }) - mean_e * mean_b;
  const float var = TokenMean(n_, [&](int g) { return basis(g) * basis(g); }) - mean_b * mean_b;
  if (cov > 0.0F && var > 0.0F) {
    a = cov / var;
    *z = *z + (mean_e - a * mean_b);
  }
}

void Channel::ApplyGain() {
  const float half = static_cast<float>((1 << bits_) - 1) / 2.0F;
  const auto error = [&](int g) { return e[static_cast<size_t>(g)]; };
  const float squares = TokenSum(n_, [&](int g) { return error(g) * error(g); });
  const float product = TokenSum(
      n_, [&](int g) { return error(g) * ((codes[static_cast<size_t>(g)] - half) * a * T(g)); });
  a = a * Gain(squares, product);
}

void Channel::Fit(uint64_t* saturated) {
  e.resize(static_cast<size_t>(n_));
  codes.resize(static_cast<size_t>(n_));
  FirstStep();
  float z = m_;
  Quantise(z);
  Refit(&z);
  stored_z = HalfFromFloat(z, saturated);
  Quantise(HalfToFloat(stored_z));
  ApplyGain();
}

}  // namespace

void EncodeKey(const Tile& tile, const std::vector<int>& positions, Record* record,
               Counts* counts) {
  const int n = tile.n;
  const int dim = tile.dim;
  Floats m;
  for (int d = 0; d < dim; ++d) m.push_back(TokenMean(n, [&](int g) { return tile.At(g, d); }));
  Tile u = tile;
  for (size_t i = 0; i < u.x.size(); ++i) u.x[i] = u.x[i] - m[i % static_cast<size_t>(dim)];

  const float g0 = RootMeanSquare(u);
  const float i0 = 1.0F / g0;
  Floats t = TokenScales(u, Floats(static_cast<size_t>(dim), i0));
  t = TokenScales(u, ChannelWeights(u, t, i0));
  Floats it;
  for (float& scale : t) {
    scale = scale * g0;
    it.push_back(1.0F / scale);
  }

  std::vector<Channel> channels;
  for (int d = 0; d < dim; ++d) {
    Floats x;
    for (int g = 0; g < n; ++g) x.push_back(tile.At(g, d));
    channels.emplace_back(n, record->shape.bits, std::move(x), m[static_cast<size_t>(d)], t, it);
    channels.back().Fit(&counts->values_saturated);
    record->zero[static_cast<size_t>(d)] = channels.back().stored_z;
    for (int g = 0; g < n; ++g) {
      record->CodeAt(d, positions[static_cast<size_t>(g)]) =
          static_cast<uint8_t>(channels.back().codes[static_cast<size_t>(g)]);
    }
  }

  const float half = static_cast<float>(record->shape.Q()) / 2.0F;
  const int k = StoredExponent(g0);
  bool any_token = false;
  for (int g = 0; g < n; ++g) {
    const auto at = static_cast<size_t>(g);
    const auto error = [&](int d) { return channels[static_cast<size_t>(d)].e[at]; };
    const float squares = ChannelSum(dim, [&](int d) { return error(d) * error(d); });
    const float product = ChannelSum(dim, [&](int d) {
      const Channel& channel = channels[static_cast<size_t>(d)];
      return error(d) * ((channel.codes[at] - half) * channel.a * t[at]);
    });
    const float scale = t[at] * Gain(squares, product);
    const uint16_t stored = HalfFromFloat(std::ldexp(scale, -k), &counts->values_saturated);
    record->other[static_cast<size_t>(positions[at])] = stored;
    any_token = any_token || stored != 0;
  }
  for (int d = 0; d < dim; ++d) {
    const float scale = any_token ? channels[static_cast<size_t>(d)].a : 0.0F;
    record->scale[static_cast<size_t>(d)] =
        HalfFromFloat(std::ldexp(scale, k), &counts->values_saturated);
  }
}

}  // namespace kvarn_reference::internal
