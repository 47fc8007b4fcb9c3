// SPDX-License-Identifier: Apache-2.0
#include "support/tiles.h"

namespace kvarn_test {
namespace {

std::vector<double> LogNormal(Random* random, int n, double octaves) {
  std::vector<double> scale;
  for (int i = 0; i < n; ++i) scale.push_back(RoughExp2(random->Normal() * octaves));
  return scale;
}

}  // namespace

const char* TileKindName(TileKind kind) {
  static constexpr const char* kNames[] = {
      "gaussian", "channel spread", "token spread", "channel bias", "heavy tail",
      "tiny",     "repeated",       "mostly zero",  "huge",         "equal"};
  return kNames[static_cast<int>(kind)];
}

std::vector<float> MakeTile(TileKind kind, Random* random, int n_rows, int head_dim) {
  const auto dim = static_cast<size_t>(head_dim);
  const std::vector<double> channel =
      LogNormal(random, head_dim, kind == TileKind::kChannelSpread ? 1.5 : 0.0);
  const std::vector<double> token =
      LogNormal(random, n_rows, kind == TileKind::kTokenSpread ? 1.0 : 0.0);
  std::vector<double> bias(dim, 0.0);
  if (kind == TileKind::kChannelBias) {
    for (int i = 0; i < 4; ++i) bias[random->Next() % dim] = 100.0 * random->Normal();
  }
  std::vector<float> rows;
  for (int g = 0; g < n_rows; ++g) {
    const bool repeat = g > 0 && (kind == TileKind::kEqualRows ||
                                  (kind == TileKind::kRepeatedRows && random->Chance(0.8)));
    for (size_t d = 0; d < dim; ++d) {
      double x = kind == TileKind::kHeavyTail ? random->HeavyTailed() : random->Normal();
      x = bias[d] + x * channel[d] * token[static_cast<size_t>(g)];
      if (kind == TileKind::kTiny) x *= 0x1p-14;
      if (kind == TileKind::kHuge) x *= random->Chance(0.02) ? 1e5 : 1e3;
      rows.push_back(repeat ? rows[rows.size() - dim] : static_cast<float>(x));
    }
  }
  if (kind == TileKind::kMostlyZero) {
    const bool all = random->Chance(0.2);
    std::vector<bool> live(dim);
    for (size_t d = 0; d < dim; ++d) live[d] = !all && random->Chance(0.7);
    for (size_t start = 0; start < rows.size(); start += dim) {
      const bool row_live = random->Chance(0.7);
      for (size_t d = 0; d < dim; ++d) {
        if (!row_live || !live[d]) rows[start + d] = 0.0F;
      }
    }
  }
  return rows;
}

}  // namespace kvarn_test
