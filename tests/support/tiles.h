// SPDX-License-Identifier: Apache-2.0
//
// Random tiles of the kinds that real caches hold, and some that they do not.
#ifndef KVARN_TESTS_SUPPORT_TILES_H_
#define KVARN_TESTS_SUPPORT_TILES_H_

#include <cstddef>
#include <vector>

#include "support/random.h"

namespace kvarn_test {

enum class TileKind {
  kGaussian,
  kChannelSpread,  // log-normal scale of each channel
  kTokenSpread,    // log-normal scale of each token
  kChannelBias,    // a large constant in a few channels
  kHeavyTail,
  kTiny,  // Gaussian times 2^-14
  kRepeatedRows,
  kMostlyZero,  // whole rows and channels of zeros, now and then nothing else
  kHuge,        // beyond the fp16 range here and there
  kEqualRows,   // one row, again and again
};
inline constexpr int kTileKinds = 9;  // of those that random tests draw: all but the last

const char* TileKindName(TileKind kind);

// [n_rows][head_dim]
std::vector<float> MakeTile(TileKind kind, Random* random, int n_rows, int head_dim);

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_TILES_H_
