// SPDX-License-Identifier: Apache-2.0
#include "reference_encoder.h"

#include <cmath>

#include "reference_arithmetic.h"
#include "reference_balance.h"
#include "reference_hadamard.h"

namespace kvarn_reference {
namespace internal {

float RootMeanSquare(const Tile& tile) {
  std::vector<float> row(static_cast<size_t>(tile.n));
  for (int g = 0; g < tile.n; ++g) {
    row[static_cast<size_t>(g)] =
        ChannelSum(tile.dim, [&](int d) { return tile.At(g, d) * tile.At(g, d); });
  }
  const float sum = TokenSum(tile.n, [&](int g) { return row[static_cast<size_t>(g)]; });
  return Max(std::sqrt(sum / static_cast<float>(tile.n * tile.dim)), 1e-8F);
}

int StoredExponent(float g0) { return std::ilogb(g0) / 2; }  // C division truncates

std::vector<float> StepFactors(int bits) {
  if (bits == 3) return {1.0F, 0.95F, 0.9F, 0.85F, 0.8F, 0.7F};
  if (bits == 4) return {1.0F, 0.97F, 0.94F, 0.91F, 0.88F, 0.82F};
  return {1.0F};
}

float Gain(float numerator, float denominator) {
  return denominator > 0.0F ? Clamp(numerator / denominator, 0.5F, 2.0F) : 1.0F;
}

}  // namespace internal

std::vector<float> Sanitise(const std::vector<float>& rows, int head_dim, Counts* counts) {
  std::vector<float> out = rows;
  const auto dim = static_cast<size_t>(head_dim);
  for (size_t start = 0; start < out.size(); start += dim) {
    bool finite = true;
    for (size_t d = 0; d < dim; ++d) finite = finite && std::isfinite(out[start + d]);
    if (!finite) counts->rows_zeroed += 1;
    for (size_t d = 0; d < dim; ++d) {
      float& value = out[start + d];
      if (!finite) {
        value = 0.0F;
      } else if (std::fabs(value) > 65504.0F) {
        value = std::copysign(65504.0F, value);
        counts->values_saturated += 1;
      }
    }
  }
  return out;
}

Record Encode(const EncoderInput& input, Counts* counts) {
  const Shape& shape = input.shape;
  Record record(shape);
  internal::Tile tile;
  tile.n = input.n_rows;
  tile.dim = shape.head_dim;
  tile.x = Sanitise(input.rows, shape.head_dim, counts);
  if (!input.balance.empty()) record.balance = input.balance;
  const Hadamard& hadamard = FindHadamard(shape.head_dim);
  for (int g = 0; g < tile.n; ++g) {
    float* row = tile.x.data() + static_cast<ptrdiff_t>(g) * tile.dim;
    for (int d = 0; shape.HasBalance() && d < tile.dim; ++d) {
      row[d] = row[d] * BalanceFactor(record.balance[static_cast<size_t>(d)]);
    }
    RotateRow(hadamard, row);
  }
  std::vector<int> positions = input.position;
  for (int g = 0; input.position.empty() && g < tile.n; ++g) positions.push_back(g);
  if (shape.key) {
    internal::EncodeKey(tile, positions, &record, counts);
  } else {
    internal::EncodeValue(tile, positions, &record, counts);
  }
  return record;
}

}  // namespace kvarn_reference
