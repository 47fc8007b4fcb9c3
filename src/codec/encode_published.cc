// SPDX-License-Identifier: Apache-2.0
//
// VarN with its published constants (docs/format.md section 7): 8 passes, log scales clamped to
// [-0.3, 10], the iterate with the least imbalance, then round-to-nearest between minimum and
// maximum. Works on lines (the axis that gets scale and zero: K channels, V tokens) and items (the
// other axis), so that one procedure serves both roles.
#include "codec/encode_published.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "format/half.h"

namespace kvarn {
namespace {

constexpr int kPasses = 8;
constexpr float kLogMin = -0.3F;
constexpr float kLogMax = 10.0F;

struct Matrix {
  const float* data;
  int lines;
  int items;
  int line_step;
  int item_step;
  float At(int line, int item) const { return data[line * line_step + item * item_step]; }
};

// Unbiased standard deviation of term(0..count-1), two passes.
template <typename Term>
float Deviation(int count, const Term& term) {
  if (count < 2) return 0.0F;
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += static_cast<double>(term(i));
  const double mean = sum / count;
  double squares = 0;
  for (int i = 0; i < count; ++i) {
    const double centred = static_cast<double>(term(i)) - mean;
    squares += centred * centred;
  }
  return static_cast<float>(std::sqrt(squares / (count - 1)));
}

struct Scales {
  std::vector<float> line;
  std::vector<float> item;
};

std::vector<float> LineDeviations(const Matrix& x, const Scales& s) {
  std::vector<float> result(static_cast<size_t>(x.lines));
  for (int i = 0; i < x.lines; ++i) {
    result[static_cast<size_t>(i)] = Deviation(x.items, [&](int j) {
      return x.At(i, j) / s.item[static_cast<size_t>(j)] / s.line[static_cast<size_t>(i)];
    });
  }
  return result;
}

std::vector<float> ItemDeviations(const Matrix& x, const Scales& s) {
  std::vector<float> result(static_cast<size_t>(x.items));
  for (int j = 0; j < x.items; ++j) {
    result[static_cast<size_t>(j)] = Deviation(x.lines, [&](int i) {
      return x.At(i, j) / s.item[static_cast<size_t>(j)] / s.line[static_cast<size_t>(i)];
    });
  }
  return result;
}

float Spread(const std::vector<float>& deviations) {
  const auto [low, high] = std::minmax_element(deviations.begin(), deviations.end());
  return *high / std::max(*low, 1e-8F);
}

float Imbalance(const Matrix& x, const Scales& s) {
  return Spread(LineDeviations(x, s)) + Spread(ItemDeviations(x, s));
}

void Update(const std::vector<float>& deviations, std::vector<float>* logs,
            std::vector<float>* scales) {
  for (size_t i = 0; i < deviations.size(); ++i) {
    const float step = std::log(std::clamp(deviations[i], 1e-3F, 1e3F));
    (*logs)[i] = std::clamp((*logs)[i] + step, kLogMin, kLogMax);
    (*scales)[i] = std::exp((*logs)[i]);
  }
}

Scales NormaliseVariance(const Matrix& x) {
  Scales s = {std::vector<float>(static_cast<size_t>(x.lines), 1.0F),
              std::vector<float>(static_cast<size_t>(x.items), 1.0F)};
  std::vector<float> line_logs(s.line.size(), 0.0F);
  std::vector<float> item_logs(s.item.size(), 0.0F);
  Scales best = s;
  float least = Imbalance(x, s);
  for (int pass = 0; pass < kPasses; ++pass) {
    Update(ItemDeviations(x, s), &item_logs, &s.item);
    Update(LineDeviations(x, s), &line_logs, &s.line);
    const float imbalance = Imbalance(x, s);
    if (imbalance <= least) {
      least = imbalance;
      best = s;
    }
  }
  return best;
}

uint16_t StoreHalf(float value, EncodeTile* tile) {
  if (std::fabs(value) >= 65520.0F) tile->saturated += 1;
  return FloatToHalf(value);
}

}  // namespace

void EncodePublished(bool key, EncodeTile* tile) {
  const int stride = RowStride(tile->head_dim);
  const int n = tile->n_rows;
  const int dim = tile->head_dim;
  const Matrix x =
      key ? Matrix{tile->rows, dim, n, 1, stride} : Matrix{tile->rows, n, dim, stride, 1};
  const Scales s = NormaliseVariance(x);
  const float top = static_cast<float>((1 << tile->bits) - 1);
  for (int j = 0; j < x.items; ++j)
    tile->other[j] = StoreHalf(s.item[static_cast<size_t>(j)], tile);
  for (int i = 0; i < x.lines; ++i) {
    const float line = s.line[static_cast<size_t>(i)];
    const auto value = [&](int j) { return x.At(i, j) / s.item[static_cast<size_t>(j)] / line; };
    float low = value(0);
    float high = low;
    for (int j = 1; j < x.items; ++j) {
      low = std::min(low, value(j));
      high = std::max(high, value(j));
    }
    const float step = std::max((high - low) / top, 1e-10F);
    tile->scale[i] = StoreHalf(line * step, tile);
    tile->zero[i] = StoreHalf(line * low, tile);
    for (int j = 0; j < x.items; ++j) {
      const float code = std::clamp(std::nearbyint((value(j) - low) / step), 0.0F, top);
      const int at = key ? j * dim + i : i * dim + j;
      tile->codes[at] = static_cast<uint8_t>(code);
    }
  }
}

}  // namespace kvarn
