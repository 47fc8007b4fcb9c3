// SPDX-License-Identifier: Apache-2.0
//
// Memory that encoding and decoding one tile needs.
#ifndef KVARN_CODEC_TILE_SCRATCH_H_
#define KVARN_CODEC_TILE_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/kernels.h"
#include "kvarn/kvarn.h"

namespace kvarn {

// Memory that starts with a cache line, so that no vector lies across two. Grows, never shrinks.
template <typename T>
class AlignedBuffer {
 public:
  void Reserve(size_t count) {
    const size_t lines = (count * sizeof(T) + sizeof(Line) - 1) / sizeof(Line);
    if (lines_.size() < lines) lines_.resize(lines);
  }
  T* data() { return reinterpret_cast<T*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> lines_;
};

// Scratch of one tile, kept by each thread so that sealing a tile allocates nothing after the
// first.
struct TileScratch {
  AlignedBuffer<float> rows;
  AlignedBuffer<float> work;
  AlignedBuffer<uint8_t> codes;
  AlignedBuffer<uint8_t> placed;

  void Reserve(const kvarn_format& format) {
    const auto group = static_cast<size_t>(format.group);
    const size_t floats = group * static_cast<size_t>(RowStride(format.head_dim));
    const size_t bytes = group * static_cast<size_t>(format.head_dim);
    rows.Reserve(floats);
    work.Reserve(floats);
    codes.Reserve(bytes);
    placed.Reserve(bytes);
  }
};

// Throws std::bad_alloc, from Reserve alone.
inline TileScratch& ThreadScratch() {
  static thread_local TileScratch scratch;
  return scratch;
}

}  // namespace kvarn
#endif  // KVARN_CODEC_TILE_SCRATCH_H_
