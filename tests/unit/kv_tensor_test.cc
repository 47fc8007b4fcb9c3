// SPDX-License-Identifier: Apache-2.0
//
// Up to which row a cache tensor is written anew.
#include "kv_tensor.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/plane_block.h"

namespace kvarn::ggml_plugin {
namespace {

constexpr int kHeadDim = 64;
constexpr int kHeads = 2;
constexpr int kStreams = 2;
constexpr int kRows = 1000;  // the last tile is cut short

class KvTensorRows : public testing::Test {
 protected:
  KvTensorRows()
      : arena_(kStreams * kHeads * PlaneBytes(Format(), KVARN_KEY, kHeadDim, kRows)),
        kv_(Format(), {KVARN_KEY, 0}, &Tensor(), HostMemory(), arena_.data(), arena_.size(),
            kHeadDim) {
    kv_.EnsureLayout();
  }
  static KvFormat Format() {
    KvFormat format;
    format.preset = {2, 2, 128};
    return format;
  }
  static const ggml_tensor& Tensor() {
    static const ggml_tensor kTensor = [] {
      ggml_tensor made = {};
      made.ne[0] = int64_t{kHeads} * kHeadDim;
      made.ne[1] = kRows;
      made.ne[2] = kStreams;
      made.ne[3] = 1;
      return made;
    }();
    return kTensor;
  }
  // One value in the last column, so that a row counts however little it holds.
  void Write(int64_t stream, int64_t head, int64_t row) {
    std::vector<float> values(kHeadDim);
    values.back() = 1;
    ASSERT_EQ(kvarn_plane_write(kv_.plane(), kv_.PlaneMemory(stream, head), row, values.data(),
                                nullptr, 0, 0),
              KVARN_OK);
  }

  kvarn_test::Block arena_;
  KvTensor kv_;
};

TEST_F(KvTensorRows, HeldByAnEmptyStream) { EXPECT_EQ(kv_.RowsHeld(0), 0); }

TEST_F(KvTensorRows, HeldUpToTheLastOfAnyHead) {
  Write(1, 0, 0);
  EXPECT_EQ(kv_.RowsHeld(1), 1);
  Write(1, 0, 130);
  EXPECT_EQ(kv_.RowsHeld(1), 131);
  Write(1, 1, 127);
  EXPECT_EQ(kv_.RowsHeld(1), 131);
  Write(1, 1, 255);
  EXPECT_EQ(kv_.RowsHeld(1), 256);
  Write(1, 1, kRows - 1);
  EXPECT_EQ(kv_.RowsHeld(1), kRows);
  EXPECT_EQ(kv_.RowsHeld(0), 0);
}

TEST_F(KvTensorRows, HeldBySealedTiles) {
  for (int64_t row = 0; row < 600; ++row) Write(0, 0, row);
  kvarn_plane_stats stats = {};
  kv_.AddStats(&stats);
  ASSERT_GT(stats.tiles_sealed, 0);
  EXPECT_EQ(kv_.RowsHeld(0), 600);
}

}  // namespace
}  // namespace kvarn::ggml_plugin
