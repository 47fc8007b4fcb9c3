// SPDX-License-Identifier: Apache-2.0
//
// Which attention node of a graph reads which copies, and that layers share their memory.
#include "recent_copies.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/plane_block.h"

namespace kvarn::ggml_plugin {
namespace {

constexpr int kHeadDim = 64;
constexpr int kHeads = 3;

// A cache tensor of four streams of 1024 rows.
struct Cache {
  kvarn_test::Block arena;
  KvTensor kv;

  explicit Cache(kvarn_role role)
      : arena(Bytes(role)),
        kv(Format(), {role, 0}, &Tensor(), HostMemory(), arena.data(), arena.size(), kHeadDim) {
    kv.EnsureLayout();
  }
  static KvFormat Format() {
    KvFormat format;
    format.preset = {4, 2, 128};
    return format;
  }
  static size_t Bytes(kvarn_role role) {
    return 4 * kHeads * PlaneBytes(Format(), role, kHeadDim, 1024);
  }
  static const ggml_tensor& Tensor() {
    static const ggml_tensor tensor = [] {
      ggml_tensor made = {};
      std::memcpy(made.name, "cache", 6);
      made.ne[0] = static_cast<int64_t>(kHeads) * kHeadDim;
      made.ne[1] = 1024;
      made.ne[2] = 4;
      made.ne[3] = 1;
      return made;
    }();
    return tensor;
  }
};

// K and V of layers whose nodes are: write both, attention.
TEST(RecentCopies, LayersShareMemory) {
  std::vector<std::unique_ptr<Cache>> caches;
  for (int i = 0; i < 12; ++i) {
    caches.push_back(std::make_unique<Cache>(i % 2 == 0 ? KVARN_KEY : KVARN_VALUE));
  }
  const TokenShape tokens = {0, 1, 512};
  RecentCopies copies;
  std::vector<int> writes;
  for (int layer = 0; layer < 6; ++layer) {
    for (int i : {2 * layer, 2 * layer + 1}) {
      writes.push_back(copies.Write(&caches[static_cast<size_t>(i)]->kv, 512, 2 * layer));
    }
    for (int i : {2 * layer, 2 * layer + 1}) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(copies.Read(&caches[at]->kv, tokens, 2 * layer + 1), writes[at]);
    }
  }
  copies.Place();
  for (size_t i = 0; i < writes.size(); ++i) {
    const RecentBlock block = copies.Block(writes[i]);
    EXPECT_EQ(block.memory, copies.Block(writes[i % 2]).memory) << "layer " << i / 2;
    EXPECT_EQ(block.n_copies, 512 / 128 + 2);
    EXPECT_GE(block.head_stride, kvarn_recent_bytes(caches[i]->kv.plane(), block.n_copies));
    EXPECT_EQ(block.stream_stride, kHeads * block.head_stride);
  }
  EXPECT_NE(copies.Block(writes[0]).memory, copies.Block(writes[1]).memory);
}

// The last layer reads the cache of the first: its block must not be given to the layers between.
TEST(RecentCopies, SharedCachesKeepTheirBlock) {
  Cache shared(KVARN_KEY);
  Cache second(KVARN_KEY);
  Cache third(KVARN_KEY);
  const TokenShape tokens = {1, 2, 100};
  RecentCopies copies;
  const int first_write = copies.Write(&shared.kv, 200, 0);
  EXPECT_EQ(copies.Read(&shared.kv, tokens, 1), first_write);
  const int second_write = copies.Write(&second.kv, 200, 2);
  EXPECT_EQ(copies.Read(&second.kv, tokens, 3), second_write);
  const int third_write = copies.Write(&third.kv, 200, 4);
  EXPECT_EQ(copies.Read(&third.kv, tokens, 5), third_write);
  EXPECT_EQ(copies.Read(&shared.kv, tokens, 6), first_write);
  copies.Place();
  EXPECT_NE(copies.Block(first_write).memory, copies.Block(second_write).memory);
  EXPECT_EQ(copies.Block(second_write).memory, copies.Block(third_write).memory);
  EXPECT_EQ(copies.Block(first_write).tokens, tokens);
}

TEST(RecentCopies, OtherShapesReadRecords) {
  Cache cache(KVARN_KEY);
  Cache other(KVARN_KEY);
  RecentCopies copies;
  EXPECT_EQ(copies.Read(&cache.kv, {0, 1, 8}, 0), -1) << "nothing was written in this graph";
  int write = copies.Write(&cache.kv, 8, 1);
  EXPECT_EQ(copies.Read(&other.kv, {0, 1, 8}, 2), -1);
  EXPECT_EQ(copies.Read(&cache.kv, {0, 1, 3}, 2), -1) << "fewer queries than rows";
  EXPECT_EQ(copies.Read(&cache.kv, {0, 8, 1}, 2), -1) << "single tokens";
  EXPECT_EQ(copies.Read(&cache.kv, {0, 2, 4}, 2), write);
  EXPECT_EQ(copies.Read(&cache.kv, {0, 1, 8}, 3), -1) << "rows are kept for other streams";
  EXPECT_EQ(copies.Read(&cache.kv, {1, 2, 4}, 4), -1);
  copies.Forget(&cache.kv);
  EXPECT_EQ(copies.Read(&cache.kv, {0, 2, 4}, 5), -1) << "another node wrote to it";
  copies.Place();
  EXPECT_NE(copies.Block(write).memory, nullptr);
  EXPECT_EQ(copies.Block(-1).memory, nullptr);

  copies.Clear();
  write = copies.Write(&cache.kv, 8, 0);
  copies.Place();
  EXPECT_EQ(copies.Block(write).memory, nullptr) << "nobody reads";
}

// Written twice in a graph: each attention node reads the copies of the write before it.
TEST(RecentCopies, ANewWriteTakesOver) {
  Cache cache(KVARN_VALUE);
  RecentCopies copies;
  const int first = copies.Write(&cache.kv, 8, 0);
  EXPECT_EQ(copies.Read(&cache.kv, {0, 1, 8}, 1), first);
  const int second = copies.Write(&cache.kv, 8, 2);
  EXPECT_NE(first, second);
  EXPECT_EQ(copies.Read(&cache.kv, {0, 1, 8}, 3), second);
}

}  // namespace
}  // namespace kvarn::ggml_plugin
