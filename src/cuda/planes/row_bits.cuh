// SPDX-License-Identifier: Apache-2.0
//
// Sets of rows of a tile.
#pragma once

#include "cache/plane.h"

namespace kvarn::cuda {

// Positions [begin, begin + n).
__device__ inline RowBits RowsOf(int begin, int n) {
  RowBits bits = {};
  for (int word = 0; word < 2; ++word) {
    const int from = max(begin - 64 * word, 0);
    const int to = min(begin + n - 64 * word, 64);
    if (from < to) bits.word[word] = ~uint64_t{0} >> (64 - (to - from)) << from;
  }
  return bits;
}
__device__ inline void Add(const RowBits& more, RowBits* bits) {
  bits->word[0] |= more.word[0];
  bits->word[1] |= more.word[1];
}
__device__ inline void Remove(const RowBits& less, RowBits* bits) {
  bits->word[0] &= ~less.word[0];
  bits->word[1] &= ~less.word[1];
}

}  // namespace kvarn::cuda
