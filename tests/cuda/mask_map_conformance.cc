// SPDX-License-Identifier: Apache-2.0
//
// The map of a mask, held to one made bit by bit here.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "device_array.h"
#include "kvarn/kvarn_cuda.h"

namespace {

using kvarn_cuda_test::DeviceArray;

constexpr uint16_t kHidden = 0xFC00;  // -Inf

struct Shape {
  int n_sequences, n_tokens, n_positions, group;
  int extra;  // entries of a row of the mask beyond its positions
};

// Rows that are hidden, plain or any, tile by tile; half of the tiles have one other entry.
std::vector<uint16_t> RandomMask(const Shape& s, std::mt19937* random) {
  const int columns = s.n_positions + s.extra;
  std::vector<uint16_t> mask(static_cast<size_t>(s.n_sequences * s.n_tokens * columns));
  for (int row = 0; row < s.n_sequences * s.n_tokens; ++row) {
    for (int x = 0; x < columns; ++x) {
      uint16_t& m = mask[static_cast<size_t>(row * columns + x)];
      const int kind = (row % s.n_tokens / 16 + x / s.group) % 3;
      const auto any = static_cast<uint16_t>((*random)());
      m = kind == 0 ? kHidden : kind == 1 ? static_cast<uint16_t>(any & 0x8000U) : any;
      if (x >= s.n_positions) m = 0;  // must not be looked at
    }
  }
  const int n_tiles = (s.n_positions + s.group - 1) / s.group;
  for (int i = 0; i < s.n_sequences * n_tiles / 2 + 1 && !mask.empty(); ++i) {
    const auto row =
        static_cast<int>((*random)() % static_cast<unsigned>(s.n_sequences * s.n_tokens));
    const auto x = static_cast<int>((*random)() % static_cast<unsigned>(s.n_positions));
    mask[static_cast<size_t>(row * columns + x)] = (*random)() % 2 == 0 ? kHidden : uint16_t{1};
  }
  return mask;
}

std::vector<uint8_t> ExpectedMap(const Shape& s, const std::vector<uint16_t>& mask) {
  std::vector<uint8_t> map;
  for (int i = 0; i < s.n_sequences; ++i) {
    for (int token = 0; token < s.n_tokens; token += KVARN_CUDA_MAP_TOKENS) {
      for (int first = 0; first < s.n_positions; first += s.group) {
        bool seen = false;
        bool plain = true;
        for (int t = token; t < token + KVARN_CUDA_MAP_TOKENS && t < s.n_tokens; ++t) {
          for (int x = first; x < first + s.group; ++x) {
            const int at = (i * s.n_tokens + t) * (s.n_positions + s.extra) + x;
            const uint16_t m = x < s.n_positions ? mask[static_cast<size_t>(at)] : kHidden;
            seen = seen || m != kHidden;
            plain = plain && (m == 0 || m == 0x8000);
          }
        }
        map.push_back(static_cast<uint8_t>((seen ? KVARN_CUDA_MAP_SEEN : 0) |
                                           (plain ? KVARN_CUDA_MAP_PLAIN : 0)));
      }
    }
  }
  return map;
}

bool Passes(const Shape& s, std::mt19937* random) {
  const std::vector<uint16_t> mask = RandomMask(s, random);
  const std::vector<uint8_t> expected = ExpectedMap(s, mask);
  DeviceArray<uint16_t> on_device(mask);
  DeviceArray<uint8_t> map(std::vector<uint8_t>(expected.size(), 0xEE));
  const int64_t token_stride = int64_t{2} * (s.n_positions + s.extra);
  const kvarn_status status =
      kvarn_cuda_mask_map(on_device.get(), token_stride * s.n_tokens, token_stride, s.n_sequences,
                          s.n_tokens, s.n_positions, s.group, map.get(), nullptr);
  kvarn_cuda_test::Check(cudaDeviceSynchronize(), "mask map");
  int kinds[4] = {};
  for (const uint8_t bits : expected) kinds[bits] += 1;
  const bool ok = status == KVARN_OK && map.Download() == expected;
  std::printf(
      "%d sequences of %d tokens, %d positions in tiles of %d: %d hidden, %d seen, %d plain%s\n",
      s.n_sequences, s.n_tokens, s.n_positions, s.group, kinds[0], kinds[1], kinds[3],
      ok ? "" : "  FAILED");
  return ok;
}

}  // namespace

int main() {
  if (!kvarn_cuda_test::HasDevice()) {
    std::printf("skipped: no CUDA device on this machine\n");
    return 77;
  }
  std::mt19937 random(1);
  int failed = 0;
  for (const Shape& shape :
       {Shape{1, 1, 1, 128, 0}, Shape{2, 17, 300, 128, 4}, Shape{3, 40, 1000, 64, 3},
        Shape{1, 100, 1024, 128, 0}, Shape{2, 16, 4001, 64, 1}, Shape{0, 5, 100, 64, 0},
        Shape{1, 0, 100, 64, 0}, Shape{1, 5, 0, 64, 0}}) {
    failed += Passes(shape, &random) ? 0 : 1;
  }
  std::printf("%d failed\n", failed);
  return failed == 0 ? 0 : 1;
}
