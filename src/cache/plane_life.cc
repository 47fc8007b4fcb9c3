// SPDX-License-Identifier: Apache-2.0
#include "cache/plane.h"

namespace kvarn {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): every bit of the input reaches every bit of the result.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

// A sum over the words that are not zero, each mixed with its place.
uint64_t PlaneLife(const kvarn_plane& plane, const void* memory) {
  uint64_t sum = 0;
  uint64_t place = 0;
  const auto add = [&](uint64_t word) {
    ++place;
    if (word != 0) sum += Mix(word ^ Mix(place));
  };
  const TileEntry* tiles = plane.Tiles(memory);
  for (int64_t i = 0; i < plane.n_tiles; ++i) {
    add(static_cast<uint64_t>(tiles[i].state) << 16 | tiles[i].slot);
    add(tiles[i].written.word[0]);
    add(tiles[i].written.word[1]);
  }
  const SlotEntry* slots = plane.Slots(memory);
  for (int i = 0; i < plane.n_slots; ++i) {
    add(slots[i].stamp);
    add(static_cast<uint64_t>(slots[i].tile));
  }
  return sum;
}

}  // namespace kvarn
