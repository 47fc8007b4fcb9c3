// SPDX-License-Identifier: Apache-2.0
//
// What the plane functions of the C ABI refuse.
#include <gtest/gtest.h>

#include <vector>

#include "kvarn/kvarn.h"
#include "support/plane_block.h"

namespace kvarn_test {
namespace {

TEST(PlaneArguments, AreChecked) {
  kvarn_plane* made = nullptr;
  kvarn_plane_config config = {{KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CPU, 4, 64, 32}, 128, 0, 0};
  EXPECT_EQ(kvarn_plane_create(nullptr, &made), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_plane_create(&config, nullptr), KVARN_ERROR_ARGUMENT);
  const auto refused = [&](auto change, kvarn_status want) {
    kvarn_plane_config bad = config;
    change(&bad);
    EXPECT_EQ(kvarn_plane_create(&bad, &made), want);
    EXPECT_EQ(made, nullptr);
  };
  using Change = kvarn_plane_config*;
  refused([](Change c) { c->format.order = KVARN_ORDER_PORTABLE; }, KVARN_ERROR_FORMAT);
  refused([](Change c) { c->format.bits = 5; }, KVARN_ERROR_FORMAT);
  refused([](Change c) { c->n_rows = 0; }, KVARN_ERROR_ARGUMENT);
  refused([](Change c) { c->n_rows = -1; }, KVARN_ERROR_ARGUMENT);
  refused([](Change c) { c->n_rows = INT64_MAX; }, KVARN_ERROR_ARGUMENT);
  refused([](Change c) { c->tail_rows = -1; }, KVARN_ERROR_ARGUMENT);
  refused([](Change c) { c->sink_tiles = -1; }, KVARN_ERROR_ARGUMENT);
  kvarn_plane_destroy(nullptr);
  EXPECT_EQ(kvarn_plane_bytes(nullptr), 0U);

  const PlanePtr plane = MakePlane(config);
  EXPECT_EQ(kvarn_plane_bytes(plane.get()) % 64, 0U);
  Block block(kvarn_plane_bytes(plane.get()));
  const std::vector<float> x(32, 1.0F);
  void* memory = block.data();
  for (int64_t row = 0; row < 100; ++row) {
    ASSERT_EQ(kvarn_plane_write(plane.get(), memory, row, x.data(), nullptr, 0, 0), KVARN_OK);
  }
  const std::vector<uint8_t> before(block.data(), block.data() + block.size());
  constexpr kvarn_status kArgument = KVARN_ERROR_ARGUMENT;
  const kvarn_plane* p = plane.get();
  EXPECT_EQ(kvarn_plane_write(nullptr, memory, 0, x.data(), nullptr, 0, 0), kArgument);
  EXPECT_EQ(kvarn_plane_write(p, nullptr, 0, x.data(), nullptr, 0, 0), kArgument);
  EXPECT_EQ(kvarn_plane_write(p, memory, 0, nullptr, nullptr, 0, 0), kArgument);
  EXPECT_EQ(kvarn_plane_write(p, memory, -1, x.data(), nullptr, 0, 0), kArgument);
  EXPECT_EQ(kvarn_plane_write(p, memory, 128, x.data(), nullptr, 0, 0), kArgument);
  EXPECT_EQ(kvarn_plane_write(p, memory, INT64_MAX, x.data(), nullptr, 0, 0), kArgument);
  EXPECT_EQ(kvarn_plane_write(p, memory, 0, x.data(), x.data(), 0, 128), kArgument);
  EXPECT_EQ(kvarn_plane_write(p, memory, 0, x.data(), x.data(), -1, 128), kArgument);
  EXPECT_EQ(kvarn_recent_bytes(nullptr, 1), 0U);
  EXPECT_EQ(kvarn_recent_bytes(p, -1), 0U);
  EXPECT_EQ(kvarn_recent_bytes(p, 3) % 64, 0U);
  Block recent(kvarn_recent_bytes(p, 1));
  EXPECT_EQ(kvarn_recent_begin(nullptr, recent.data(), 1), kArgument);
  EXPECT_EQ(kvarn_recent_begin(p, nullptr, 1), kArgument);
  EXPECT_EQ(kvarn_recent_begin(p, recent.data(), -1), kArgument);
  EXPECT_EQ(kvarn_recent_begin(p, recent.data(), 1), KVARN_OK);
  EXPECT_EQ(kvarn_plane_write_recent(p, memory, 0, x.data(), nullptr, 0, 0, recent.data(), -1),
            kArgument);
  EXPECT_EQ(kvarn_plane_reset(nullptr, memory), kArgument);
  EXPECT_EQ(kvarn_plane_reset(p, nullptr), kArgument);
  std::vector<uint16_t> out(32 * 128, 7);
  EXPECT_EQ(kvarn_plane_read(nullptr, memory, 0, 1, out.data(), 64), kArgument);
  EXPECT_EQ(kvarn_plane_read(p, nullptr, 0, 1, out.data(), 64), kArgument);
  EXPECT_EQ(kvarn_plane_read(p, memory, 0, 1, nullptr, 64), kArgument);
  EXPECT_EQ(kvarn_plane_read(p, memory, -1, 1, out.data(), 64), kArgument);
  EXPECT_EQ(kvarn_plane_read(p, memory, 0, -1, out.data(), 64), kArgument);
  EXPECT_EQ(kvarn_plane_read(p, memory, 1, 128, out.data(), 64), kArgument);
  EXPECT_EQ(kvarn_plane_read(p, memory, 127, INT64_MAX, out.data(), 64), kArgument);
  EXPECT_EQ(kvarn_plane_read(p, memory, 128, 0, out.data(), 64), KVARN_OK);
  kvarn_plane_stats stats = {};
  EXPECT_EQ(kvarn_plane_get_stats(nullptr, memory, &stats), kArgument);
  EXPECT_EQ(kvarn_plane_get_stats(p, nullptr, &stats), kArgument);
  EXPECT_EQ(kvarn_plane_get_stats(p, memory, nullptr), kArgument);
  EXPECT_EQ(std::vector<uint8_t>(block.data(), block.data() + block.size()), before)
      << "a refusal changes nothing";
  EXPECT_EQ(out, std::vector<uint16_t>(32 * 128, 7));
}

}  // namespace
}  // namespace kvarn_test
