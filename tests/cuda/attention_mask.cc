// SPDX-License-Identifier: Apache-2.0
//
// Masks of a call, and what a call is given beside a map of one.
#include <algorithm>
#include <cmath>

#include "attention_setup.h"
#include "sixteen_bit.h"

namespace kvarn_cuda_test {
namespace {

constexpr uint16_t kHidden = 0xFC00;  // -Inf
constexpr uint16_t kNaN = 0x7E00;

}  // namespace

// A quarter of the positions hidden, addends for the others; with a map some tiles are alike.
void AttentionSetup::MakeMask(std::mt19937* random) {
  std::normal_distribution<float> normal;
  const int columns = *std::max_element(case_.lengths.begin(), case_.lengths.end());
  mask_.resize(static_cast<size_t>(n_query_tokens_) * static_cast<size_t>(columns));
  for (uint16_t& m : mask_) {
    m = (*random)() % 4 == 0 ? kHidden : ToBits(normal(*random), KVARN_FP16);
  }
  call_.mask_token_stride = 2 * columns;
  call_.mask_sequence_stride = call_.mask_token_stride * call_.n_tokens;
  if (!case_.mask_map) {
    call_.mask = Upload(mask_);
    return;
  }
  HideTiles(random);
  map_mask_ = Upload(mask_);
  call_.mask = Upload(MaskBesideMap());
  call_.mask_map_stride = (columns + case_.group - 1) / case_.group;
  const int n_rows = (call_.n_tokens + KVARN_CUDA_MAP_TOKENS - 1) / KVARN_CUDA_MAP_TOKENS;
  map_ = std::make_unique<DeviceArray<uint8_t>>(
      static_cast<size_t>(call_.n_sequences * n_rows * call_.mask_map_stride));
  call_.mask_map = map_->get();
}

// Of each tile, a third of the runs of tokens that share entries of the map see nothing, and a
// third all of it; of a sixth of the tiles all tokens see nothing, and of as many all. The last
// token of every third sequence sees nothing at all.
void AttentionSetup::HideTiles(std::mt19937* random) {
  const auto columns = static_cast<size_t>(call_.mask_token_stride / 2);
  const auto group = static_cast<size_t>(case_.group);
  for (int i = 0; i < call_.n_sequences; ++i) {
    const Sequence& s = sequences_[static_cast<size_t>(i)];
    for (size_t first = 0; first < columns; first += group) {
      const auto whole = (*random)() % 6;
      auto kind = whole;
      for (int token = 0; token < s.n_tokens; ++token) {
        if (whole > 1 && token % KVARN_CUDA_MAP_TOKENS == 0) kind = (*random)() % 3;
        if (kind > 1) continue;
        const auto row =
            mask_.begin() + static_cast<std::ptrdiff_t>(columns) * (s.first_token + token);
        std::fill(row + static_cast<std::ptrdiff_t>(first),
                  row + static_cast<std::ptrdiff_t>(std::min(first + group, columns)),
                  kind == 0 ? kHidden : uint16_t{0});
      }
    }
    if (i % 3 != 2 || s.n_tokens == 0) continue;
    const auto row =
        mask_.begin() + static_cast<std::ptrdiff_t>(columns) * (s.first_token + s.n_tokens - 1);
    std::fill(row, row + static_cast<std::ptrdiff_t>(columns), kHidden);
  }
}

// The mask with the contrary in tiles that no query token of a sequence sees, and NaN where all see
// all: there the map alone may count.
std::vector<uint16_t> AttentionSetup::MaskBesideMap() const {
  std::vector<uint16_t> mask = mask_;
  const auto columns = static_cast<int>(call_.mask_token_stride / 2);
  for (const Sequence& s : sequences_) {
    for (int first = 0; first < columns; first += case_.group) {
      const int end = std::min(first + case_.group, columns);
      bool seen = false;
      bool plain = first + case_.group <= s.length;
      const auto each = [&](auto visit) {
        for (int token = 0; token < s.n_tokens; ++token) {
          const size_t row = static_cast<size_t>(s.first_token + token);
          for (int x = first; x < end; ++x) {
            visit(mask[row * static_cast<size_t>(columns) + static_cast<size_t>(x)]);
          }
        }
      };
      each([&](uint16_t m) {
        seen = seen || m != kHidden;
        plain = plain && m == 0;
      });
      if (seen && !plain) continue;
      each([&](uint16_t& m) { m = seen ? kNaN : uint16_t{0}; });
    }
  }
  return mask;
}

}  // namespace kvarn_cuda_test
