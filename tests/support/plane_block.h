// SPDX-License-Identifier: Apache-2.0
//
// Planes and their memory, owned.
#ifndef KVARN_TESTS_SUPPORT_PLANE_BLOCK_H_
#define KVARN_TESTS_SUPPORT_PLANE_BLOCK_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "kvarn/kvarn.h"

namespace kvarn_test {

struct PlaneDeleter {
  void operator()(kvarn_plane* plane) const { kvarn_plane_destroy(plane); }
};
using PlanePtr = std::unique_ptr<kvarn_plane, PlaneDeleter>;

inline PlanePtr MakePlane(const kvarn_plane_config& config) {
  kvarn_plane* plane = nullptr;
  EXPECT_EQ(kvarn_plane_create(&config, &plane), KVARN_OK);
  return PlanePtr(plane);
}

// Aligned bytes of their own allocation, so that a sanitizer sees any step beyond the end.
class Block {
 public:
  explicit Block(size_t bytes, int fill = 0)
      : bytes_(bytes), data_(static_cast<uint8_t*>(std::aligned_alloc(64, RoundUp(bytes)))) {
    std::memset(data_.get(), fill, RoundUp(bytes));
  }
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return bytes_; }

 private:
  struct Freer {
    void operator()(uint8_t* data) const { std::free(data); }
  };
  static size_t RoundUp(size_t bytes) { return bytes == 0 ? 64 : (bytes + 63) / 64 * 64; }

  size_t bytes_;
  std::unique_ptr<uint8_t, Freer> data_;
};

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_PLANE_BLOCK_H_
