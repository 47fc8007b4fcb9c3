// SPDX-License-Identifier: Apache-2.0
//
// docs/format.md section 6.
#include <cmath>

#include "reference_arithmetic.h"
#include "reference_encoder.h"
#include "reference_half.h"

namespace kvarn_reference::internal {
namespace {

using Floats = std::vector<float>;

// max(std, rms / 4).
float GuardedDeviation(float mean_square, float mean) {
  return Max(Deviation(mean_square, mean), std::sqrt(mean_square) / 4.0F);
}

// C[d] from y = X * wt, within a factor of 1000 of the C before.
void UpdateChannels(const Tile& tile, const Floats& wt, Floats* c) {
  for (int d = 0; d < tile.dim; ++d) {
    const auto y = [&](int g) { return tile.At(g, d) * wt[static_cast<size_t>(g)]; };
    const float mean = TokenMean(tile.n, y);
    const float square = TokenMean(tile.n, [&](int g) { return y(g) * y(g); });
    float& scale = (*c)[static_cast<size_t>(d)];
    scale = Clamp(GuardedDeviation(square, mean), scale * 1e-3F, scale * 1e3F);
  }
}

Floats TokenWeights(const Tile& tile, const Floats& c, float i0) {
  Floats wc;
  for (const float scale : c) wc.push_back(i0 / scale);
  Floats wt;
  for (int g = 0; g < tile.n; ++g) {
    const auto y = [&](int d) { return tile.At(g, d) * wc[static_cast<size_t>(d)]; };
    const float mean = ChannelMean(tile.dim, y);
    const float square = ChannelMean(tile.dim, [&](int d) { return y(d) * y(d); });
    wt.push_back(i0 / Clamp(GuardedDeviation(square, mean), 1e-3F, 1e3F));
  }
  return wt;
}

// One token on its way to a, z and its codes. y and w are indexed by channel.
class Token {
 public:
  Token(int bits, const Floats& y, const Floats& w)
      : bits_(bits),
        dim_(static_cast<int>(y.size())),
        q_(static_cast<float>((1 << bits) - 1)),
        y_(y),
        w_(w),
        codes(y.size()) {}

  void Fit(uint64_t* saturated);

 private:
  float Y(int d) const { return y_[static_cast<size_t>(d)]; }
  float W(int d) const { return w_[static_cast<size_t>(d)]; }
  float CodeOf(int d, float step, float z) const {
    return Code((Y(d) - z) * Inverse(step) + q_ / 2.0F, q_);
  }
  // Weighted squared error of the row with this step and centre.
  float ErrorOf(float step, float z) const {
    return ChannelSum(dim_, [&](int d) {
      const float off = (Y(d) - z) - (CodeOf(d, step, z) - q_ / 2.0F) * step;
      return W(d) * (off * off);
    });
  }
  void FirstStep();
  void Refit();
  float FinalGain();

  int bits_;
  int dim_;
  float q_;
  const Floats& y_;
  const Floats& w_;
  float a_ = 0.0F;
  float z_ = 0.0F;

 public:
  Floats codes;
  uint16_t stored_a = 0;
  uint16_t stored_z = 0;
};

void Token::FirstStep() {
  float low = Y(0);
  float high = Y(0);
  for (int d = 1; d < dim_; ++d) {
    low = Min(low, Y(d));
    high = Max(high, Y(d));
  }
  if (bits_ == 2) {
    z_ = ChannelMean(dim_, [&](int d) { return Y(d); });
    a_ = 0.9957F * Deviation(ChannelMean(dim_, [&](int d) { return Y(d) * Y(d); }), z_);
    const float narrow_error = ErrorOf(a_, z_);
    const float range = (high - low) / 3.0F;
    const float middle = 0.5F * (low + high);
    if (ErrorOf(range, middle) < narrow_error) {
      a_ = range;
      z_ = middle;
    }
    return;
  }
  z_ = 0.5F * (low + high);
  const float largest_step = (high - low) / q_;
  float least = HUGE_VALF;
  for (const float factor : StepFactors(bits_)) {
    const float step = largest_step * factor;
    const float error = ErrorOf(step, z_);
    if (error < least) {
      least = error;
      a_ = step;
    }
  }
}

void Token::Refit() {
  const auto basis = [&](int d) { return codes[static_cast<size_t>(d)] - q_ / 2.0F; };
  const auto error = [&](int d) { return Y(d) - z_; };
  const float weight = ChannelSum(dim_, [&](int d) { return W(d); });
  const auto mean = [&](auto value) {
    return ChannelSum(dim_, [&](int d) { return value(d); }) / weight;
  };
  const float mean_e = mean([&](int d) { return W(d) * error(d); });
  const float mean_b = mean([&](int d) { return W(d) * basis(d); });
  const float cov = mean([&](int d) { return W(d) * error(d) * basis(d); }) - mean_e * mean_b;
  const float var = mean([&](int d) { return W(d) * basis(d) * basis(d); }) - mean_b * mean_b;
  if (cov > 0.0F && var > 0.0F) {
    a_ = cov / var;
    z_ = z_ + (mean_e - a_ * mean_b);
  }
}

float Token::FinalGain() {
  const auto error = [&](int d) { return Y(d) - z_; };
  const float squares = ChannelSum(dim_, [&](int d) { return W(d) * error(d) * error(d); });
  const float product = ChannelSum(dim_, [&](int d) {
    return W(d) * error(d) * ((codes[static_cast<size_t>(d)] - q_ / 2.0F) * a_);
  });
  return Gain(squares, product);
}

void Token::Fit(uint64_t* saturated) {
  const auto quantise = [&] {
    for (int d = 0; d < dim_; ++d) codes[static_cast<size_t>(d)] = CodeOf(d, a_, z_);
  };
  FirstStep();
  quantise();
  Refit();
  quantise();
  stored_a = HalfFromFloat(a_ * FinalGain(), saturated);
  stored_z = HalfFromFloat(z_ - HalfToFloat(stored_a) * (q_ / 2.0F), saturated);
}

}  // namespace

void EncodeValue(const Tile& tile, const std::vector<int>& positions, Record* record,
                 Counts* counts) {
  const auto dim = static_cast<size_t>(tile.dim);
  const float g0 = RootMeanSquare(tile);
  const float i0 = 1.0F / g0;
  Floats c(dim, 1.0F);
  UpdateChannels(tile, Floats(static_cast<size_t>(tile.n), i0), &c);
  UpdateChannels(tile, TokenWeights(tile, c, i0), &c);

  const int k = StoredExponent(g0);
  Floats inverse(dim);
  Floats weight(dim);
  for (size_t d = 0; d < dim; ++d) {
    record->other[d] = HalfFromFloat(std::ldexp(c[d] * g0, -k), &counts->values_saturated);
    const float stored = HalfToFloat(record->other[d]);
    inverse[d] = Inverse(stored);
    weight[d] = stored * stored;
  }
  Floats y(dim);
  for (int g = 0; g < tile.n; ++g) {
    for (size_t d = 0; d < dim; ++d) y[d] = tile.At(g, static_cast<int>(d)) * inverse[d];
    Token token(record->shape.bits, y, weight);
    token.Fit(&counts->values_saturated);
    const int at = positions[static_cast<size_t>(g)];
    record->scale[static_cast<size_t>(at)] = token.stored_a;
    record->zero[static_cast<size_t>(at)] = token.stored_z;
    for (size_t d = 0; d < dim; ++d) {
      record->CodeAt(static_cast<int>(d), at) = static_cast<uint8_t>(token.codes[d]);
    }
  }
}

}  // namespace kvarn_reference::internal
