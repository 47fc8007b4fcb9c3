// SPDX-License-Identifier: Apache-2.0
//
// Planes through fixed sequences: borders of tiles, forks, resets, neighbours, query statistics.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/reference_half.h"
#include "support/formats.h"
#include "support/isa.h"
#include "support/plane_block.h"
#include "support/plane_peek.h"
#include "support/random.h"

namespace kvarn_test {
namespace {

kvarn_plane_config Config(kvarn_role role, int group, int64_t n_rows, int tail, int sinks) {
  return {{role, KVARN_BALANCED, KVARN_ORDER_CPU, 4, group, 32}, n_rows, tail, sinks};
}

// Row `row` of version `version` of a sequence: the same values wherever it is written.
std::vector<float> RowOf(int64_t row, int version, float scale = 1.0F) {
  Random random(static_cast<uint64_t>(row) * 1000003U + static_cast<uint64_t>(version));
  std::vector<float> x;
  for (int d = 0; d < 32; ++d) x.push_back(scale * static_cast<float>(random.Normal()));
  return x;
}

struct Cache {
  const kvarn_plane* plane;
  Block memory;

  explicit Cache(const kvarn_plane* of) : plane(of), memory(kvarn_plane_bytes(of)) {}
  Cache(const Cache& other) : Cache(other.plane) {
    std::memcpy(memory.data(), other.memory.data(), memory.size());
  }
  void Write(int64_t row, const std::vector<float>& x) {
    ASSERT_EQ(kvarn_plane_write(plane, memory.data(), row, x.data(), nullptr, 0, 0), KVARN_OK);
  }
  void Append(int64_t first, int64_t end, int version) {
    for (int64_t row = first; row < end; ++row) Write(row, RowOf(row, version));
  }
  kvarn_plane_stats Stats() const {
    kvarn_plane_stats stats = {};
    EXPECT_EQ(kvarn_plane_get_stats(plane, memory.data(), &stats), KVARN_OK);
    return stats;
  }
  bool SameBytes(const Cache& other) const {
    return std::memcmp(memory.data(), other.memory.data(), memory.size()) == 0;
  }
};

// After n rows in order, the tiles whose tail is written are sealed, each once, and no other.
TEST(PlaneSequence, TilesAreSealedWhenTheirTailIsWritten) {
  for (const int group : kGroups) {
    for (const int tail : {0, 1, 64, 100, 128, 256}) {
      for (const int sinks : {0, 1, 2}) {
        const PlanePtr plane = MakePlane(Config(KVARN_VALUE, group, 4096, tail, sinks));
        Cache cache(plane.get());
        for (int64_t n = 1; n <= 1200; ++n) {
          cache.Write(n - 1, RowOf(n - 1, 0));
          const kvarn_plane_stats stats = cache.Stats();
          const int64_t beyond = std::max(tail, 1);  // at least one row beyond
          const int64_t sealed =
              n < beyond ? 0 : std::max<int64_t>(0, (n - beyond) / group - sinks);
          ASSERT_EQ(stats.tiles_sealed, sealed) << "rows " << n << " tail " << tail;
          ASSERT_EQ(stats.seals, static_cast<uint64_t>(stats.tiles_sealed));
          ASSERT_EQ(stats.reopens, 0U);
          ASSERT_LE(stats.tiles_open, sinks + (tail + group - 1) / group + 2);
          ASSERT_EQ(stats.tiles_open + stats.tiles_sealed, (n + group - 1) / group);
        }
      }
    }
  }
}

// Two earlier requests that ended inside a tile do not push the tail of a new one out of its slots.
TEST(PlaneSequence, AbandonedTilesLeaveTheTailExact) {
  for (const int tail : {1, 64, 128}) {
    const PlanePtr plane = MakePlane(Config(KVARN_VALUE, 64, 640, tail, 0));
    Cache cache(plane.get());
    for (const int64_t abandoned : {300, 400, 500, 600})
      cache.Write(abandoned, RowOf(abandoned, 1));
    for (int64_t row = 0; row < 280; ++row) {
      cache.Write(row, RowOf(row, 2));
      for (int64_t back = 0; back < std::min<int64_t>(tail, row + 1); ++back) {
        std::vector<uint16_t> got(32);
        kvarn_plane_read(plane.get(), cache.memory.data(), row - back, 1, got.data(), 64);
        std::vector<uint16_t> want;
        for (const float x : RowOf(row - back, 2)) {
          want.push_back(kvarn_reference::HalfFromFloat(x, nullptr));
        }
        ASSERT_EQ(got, want) << "row " << row - back << " after " << row << ", tail " << tail;
      }
    }
  }
}

// A roll-back into sealed tiles opens and seals each of them once, however many rows it rewrites:
// every further cycle would quantise the other rows again.
TEST(PlaneSequence, RollBackCostsOneSealATile) {
  for (const int tail : {0, 64}) {
    for (const int back : {1, 20, 63, 64, 130}) {
      const PlanePtr plane = MakePlane(Config(KVARN_VALUE, 64, 1024, tail, 0));
      Cache cache(plane.get());
      cache.Append(0, 500, 1);
      const kvarn_plane_stats before = cache.Stats();
      cache.Append(400 - back, 600, 2);
      const kvarn_plane_stats after = cache.Stats();
      const int64_t first = (400 - back) / 64;
      const int64_t touched = before.tiles_sealed - first;  // sealed tiles from there on
      // The tiles still open at the old end, tail / 64 + 1 at most, may go out and come back.
      const int64_t allowed = touched + tail / 64 + 1;
      EXPECT_LE(after.reopens - before.reopens, static_cast<uint64_t>(allowed)) << back;
      EXPECT_LE(after.seals - before.seals,
                static_cast<uint64_t>(after.tiles_sealed - before.tiles_sealed + allowed))
          << back;
    }
  }
}

TEST(PlaneSequence, ForksEqualFreshCaches) {
  const PlanePtr plane = MakePlane(Config(KVARN_KEY, 64, 1024, 64, 1));
  for (const int64_t at : {0, 1, 63, 64, 65, 127, 128, 129, 200, 333}) {
    Cache trunk(plane.get());
    trunk.Append(0, at, 0);
    Cache left(trunk);
    Cache right(trunk);
    for (int64_t row = at; row < at + 300; ++row) {  // in lockstep, other tokens
      left.Write(row, RowOf(row, 1));
      right.Write(row, RowOf(row, 2));
    }
    trunk.Append(at, at + 150, 3);
    for (const int version : {1, 2}) {
      Cache fresh(plane.get());
      fresh.Append(0, at, 0);
      fresh.Append(at, at + 300, version);
      EXPECT_TRUE(fresh.SameBytes(version == 1 ? left : right)) << "fork at " << at;
    }
  }
}

TEST(PlaneSequence, NothingSurvivesReset) {
  for (const kvarn_role role : {KVARN_KEY, KVARN_VALUE}) {
    const PlanePtr plane = MakePlane(Config(role, 64, 500, 64, 1));
    Cache used(plane.get());
    used.Append(0, 500, 1);
    for (int64_t row = 0; row < 300; ++row) used.Write(row, RowOf(row, 2, 100.0F));
    ASSERT_EQ(kvarn_plane_reset(plane.get(), used.memory.data()), KVARN_OK);
    Cache fresh(plane.get());
    EXPECT_EQ(LiveBytes(plane.get(), used.memory.data()),
              LiveBytes(plane.get(), fresh.memory.data()));
    std::vector<uint16_t> rows(500 * 32, 1);
    ASSERT_EQ(kvarn_plane_read(plane.get(), used.memory.data(), 0, 500, rows.data(), 64), KVARN_OK);
    EXPECT_EQ(rows, std::vector<uint16_t>(500 * 32, 0));
    for (const int64_t end : {1, 100, 400}) {
      used.Append(0, end, 3);
      fresh.Append(0, end, 3);
      EXPECT_EQ(LiveBytes(plane.get(), used.memory.data()),
                LiveBytes(plane.get(), fresh.memory.data()))
          << "after " << end << " rows";
    }
  }
}

// A sequence does not see its neighbours, however large their values.
TEST(PlaneSequence, NeighboursDoNotMatter) {
  const PlanePtr plane = MakePlane(Config(KVARN_KEY, 64, 600, 64, 0));
  Cache alone(plane.get());
  alone.Append(0, 450, 1);
  Cache a(plane.get());
  Cache b(plane.get());
  for (int64_t row = 0; row < 450; ++row) {
    if (row % 3 == 0) b.Write(row / 2, RowOf(row, 9, 1000.0F));
    a.Write(row, RowOf(row, 1));
    b.Write(row, RowOf(row, 8, 1000.0F));
  }
  EXPECT_TRUE(a.SameBytes(alone));
}

TEST(PlaneSequence, EveryLevelKeepsTheSameBytes) {
  for (const kvarn_role role : {KVARN_KEY, KVARN_VALUE}) {
    const PlanePtr plane = MakePlane(Config(role, 128, 900, 0, 0));
    std::vector<Cache> caches;
    for (const std::string& isa : AvailableIsas()) {
      const ForcedIsa forced(isa);
      Cache& cache = caches.emplace_back(plane.get());
      cache.Append(0, 800, 1);
      cache.Append(700, 760, 2);
      EXPECT_TRUE(cache.SameBytes(caches.front())) << isa;
    }
  }
}

TEST(PlaneSequence, PoisonedStoresChangeNothing) {
  for (const int fill : {0xFF, 0x7E}) {
    const PlanePtr plane = MakePlane(Config(KVARN_KEY, 64, 333, 64, 1));
    Cache clean(plane.get());
    Cache poisoned(plane.get());
    PoisonStores(plane.get(), poisoned.memory.data(), fill);
    for (Cache* cache : {&clean, &poisoned}) {
      cache->Append(0, 300, 1);
      cache->Append(120, 140, 2);
      cache->Append(0, 70, 3);
    }
    EXPECT_EQ(LiveBytes(plane.get(), clean.memory.data()),
              LiveBytes(plane.get(), poisoned.memory.data()));
    std::vector<uint16_t> a(333 * 32);
    std::vector<uint16_t> b(333 * 32);
    kvarn_plane_read(plane.get(), clean.memory.data(), 0, 333, a.data(), 64);
    kvarn_plane_read(plane.get(), poisoned.memory.data(), 0, 333, b.data(), 64);
    EXPECT_EQ(a, b);
  }
}

// s of the first tile comes from its keys and from the queries of its tokens: the mean over tokens
// and heads of q^2, kept as an fp16 rms a token (2^-11 relative, so e may be off by one at a tie).
TEST(PlaneSequence, BalanceUsesTheQueries) {
  for (const int n_query : {1, 3}) {
    const PlanePtr plane = MakePlane(Config(KVARN_KEY, 64, 256, 0, 0));
    Block memory(kvarn_plane_bytes(plane.get()));
    Random random(static_cast<uint64_t>(n_query));
    std::vector<float> keys;
    std::vector<double> sum(32, 0.0);
    const size_t stride = 37;  // floats between query rows
    for (int64_t row = 0; row < 64; ++row) {
      const std::vector<float> x = RowOf(row, 5);
      for (const float value : x) {
        keys.push_back(
            kvarn_reference::HalfToFloat(kvarn_reference::HalfFromFloat(value, nullptr)));
      }
      std::vector<float> query(stride * static_cast<size_t>(n_query), NAN);
      for (size_t h = 0; h < static_cast<size_t>(n_query); ++h) {
        for (size_t d = 0; d < 32; ++d) {
          const double q = random.Normal() * RoughExp2(static_cast<double>(d) / 4.0 - 4.0);
          query[h * stride + d] = static_cast<float>(q);
          sum[d] += q * q / (64.0 * n_query);
        }
      }
      ASSERT_EQ(kvarn_plane_write(plane.get(), memory.data(), row, x.data(), query.data(), n_query,
                                  stride * sizeof(float)),
                KVARN_OK);
    }
    ASSERT_EQ(kvarn_plane_write(plane.get(), memory.data(), 64, RowOf(64, 5).data(), nullptr, 0, 0),
              KVARN_OK);
    ASSERT_EQ(PeekState(plane.get(), memory.data(), 0), TileIs::kSealed);
    const std::vector<float> mean(sum.begin(), sum.end());
    std::vector<int8_t> want(32);
    ASSERT_EQ(kvarn_balance(32, keys.data(), 64, mean.data(), want.data()), KVARN_OK);
    const std::vector<int8_t> got = PeekRecord(plane.get(), memory.data(), 0).balance;
    for (size_t d = 0; d < 32; ++d) EXPECT_NEAR(got[d], want[d], 1) << d;
    EXPECT_GT(got[31] - got[0], 8) << "channels with larger queries get a larger s";
  }
}

TEST(PlaneSequence, SmallPlanes) {
  for (const int64_t n_rows : {1, 2, 63, 64, 65}) {
    for (const int sinks : {0, 1, 5}) {
      const PlanePtr plane = MakePlane(Config(KVARN_KEY, 64, n_rows, 0, sinks));
      Cache cache(plane.get());
      for (int lap = 0; lap < 3; ++lap) cache.Append(0, n_rows, lap);
      std::vector<uint16_t> out(static_cast<size_t>(n_rows) * 32);
      EXPECT_EQ(kvarn_plane_read(plane.get(), cache.memory.data(), 0, n_rows, out.data(), 64),
                KVARN_OK);
      const kvarn_plane_stats stats = cache.Stats();
      EXPECT_EQ(stats.tiles_open + stats.tiles_sealed, (n_rows + 63) / 64);
    }
  }
}

}  // namespace
}  // namespace kvarn_test
