// SPDX-License-Identifier: Apache-2.0
//
// kvarn_attention against the double oracle over a grid of shapes, options and contents.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>

#include "support/attention_bound.h"
#include "support/attention_setup.h"
#include "support/formats.h"
#include "support/isa.h"

namespace kvarn_test {
namespace {

struct Dims {
  int key;
  int value;
};
constexpr Dims kDims[] = {{32, 32},   {40, 40},   {64, 64},   {80, 80},   {96, 96},
                          {112, 112}, {128, 128}, {192, 128}, {256, 256}, {576, 512}};
struct Heads {
  int query;
  int kv;
};
constexpr Heads kHeads[] = {{1, 1}, {2, 1}, {4, 2}, {3, 1},  {6, 2},  {4, 1},
                            {6, 1}, {7, 1}, {8, 1}, {16, 1}, {33, 11}};
constexpr int kTokens[] = {1, 2, 3, 8, 33, 70};
constexpr int kRows[] = {1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 900, 4099};

template <typename T, size_t kSize>
T At(const T (&list)[kSize], size_t i) {
  return list[i % kSize];
}

// Every value of every axis comes often; the product of all is far too many. Long and wide cases
// get fewer tokens and heads, so that the oracle stays fast.
AttentionCase MakeCase(uint64_t seed) {
  Random random(seed * 7919);
  AttentionCase c;
  c.seed = seed;
  const size_t pair = seed * 37 % (std::size(kDims) * std::size(kRows));  // a permutation
  const Dims dims = At(kDims, pair);
  c.key_dim = dims.key;
  c.value_dim = dims.value;
  c.n_rows = At(kRows, pair / std::size(kDims));
  const Heads heads = At(kHeads, random.Next());
  c.n_heads = heads.query;
  c.n_kv_heads = heads.kv;
  c.n_tokens = At(kTokens, random.Next());
  c.n_streams = random.Chance(0.25) ? 2 : 1;
  const auto work = [&] {
    return static_cast<double>(c.n_streams) * c.n_rows * (c.key_dim + c.value_dim) *
           (c.n_tokens * c.n_heads + 100.0 * c.n_kv_heads);
  };
  while (work() > 6e7 && c.n_tokens > 2) c.n_tokens = c.n_tokens > 8 ? 8 : c.n_tokens - 1;
  if (work() > 6e7) c.n_streams = 1;
  if (work() > 3e8) {
    c.n_heads /= c.n_kv_heads;
    c.n_kv_heads = 1;
  }
  c.key_bits = At(kBits, seed);
  c.value_bits = At(kBits, seed / 4);
  c.group = random.Chance(0.5) ? 64 : 128;
  c.balanced = random.Chance(0.8);
  constexpr int kTails[] = {0, 0, 64, 128};
  c.key_tail = At(kTails, random.Next());
  c.value_tail = At(kTails, random.Next());
  c.sink_tiles = random.Chance(0.3) ? 1 : 0;
  constexpr TileKind kKinds[] = {TileKind::kGaussian, TileKind::kChannelSpread,
                                 TileKind::kTokenSpread, TileKind::kChannelBias,
                                 TileKind::kRepeatedRows};
  c.keys = At(kKinds, random.Next());
  c.values = At(kKinds, random.Next());
  c.mask = static_cast<MaskKind>(random.Below(6));
  c.mask_per_head = random.Chance(0.5);
  c.mask_per_stream = random.Chance(0.5);
  c.max_bias = c.mask == MaskKind::kDistance ? 8.0 : 0.0;
  c.softcap = random.Chance(0.25) ? 30.0 : 0.0;
  c.sinks = random.Chance(0.3);
  c.head_major = random.Chance(0.5);
  c.sparse = c.mask != MaskKind::kNone && random.Chance(0.3);
  c.query_outlier = random.Chance(0.1) ? 1000.0 : 0.0;
  return c;
}

double Distance(const float* got, const std::vector<double>& want) {
  double sum = 0.0;
  for (size_t d = 0; d < want.size(); ++d) {
    const double off = static_cast<double>(got[d]) - want[d];
    sum += off * off;
  }
  return std::sqrt(sum);
}

// Runs on every level; levels differ by rounding only, so by the same bound.
void ExpectMatchesOracle(const AttentionCase& c, double* worst) {
  SCOPED_TRACE(Describe(c));
  const AttentionSetup setup(c);
  if (testing::Test::HasFailure()) return;
  std::vector<std::vector<float>> outs;
  for (const std::string& isa : AvailableIsas()) {
    const ForcedIsa forced(isa);
    outs.push_back(setup.Run(1));
  }
  AttentionBound bound(setup);
  size_t at = 0;
  for (int stream = 0; stream < c.n_streams; ++stream) {
    for (int token = 0; token < c.n_tokens; ++token) {
      for (int head = 0; head < c.n_heads; ++head) {
        const kvarn_reference::AttentionRow row =
            kvarn_reference::AttendRow(setup.Problem(), stream, token, head);
        double share = 0.0;
        for (const double p : row.probability) share += p;
        const double limit = bound.OfRow(stream, token, head, row);
        for (const std::vector<float>& out : outs) {
          const float* got = out.data() + at;
          const double off = Distance(got, row.out);
          if (share == 0.0) {
            for (int d = 0; d < c.value_dim; ++d) ASSERT_EQ(got[d], 0.0F) << "masked row";
            continue;
          }
          ASSERT_LE(off, limit) << "stream " << stream << " token " << token << " head " << head
                                << " level " << &out - outs.data();
          *worst = std::max(*worst, off / limit);
        }
        at += row.out.size();
      }
    }
  }
}

constexpr int kShards = 8;
constexpr int kPerShard = 30;  // 240 cases: every pair of dims and rows twice
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kThin = 2;
#else
constexpr int kThin = 1;
#endif

class AttentionGrid : public testing::TestWithParam<int> {};

TEST_P(AttentionGrid, MatchesTheOracle) {
  std::printf("levels: %s\n", IsaList().c_str());
  double worst = 0.0;
  for (int i = 0; i < kPerShard / kThin && !HasFailure(); ++i) {
    ExpectMatchesOracle(MakeCase(static_cast<uint64_t>(GetParam() * kPerShard + i * kThin)),
                        &worst);
  }
  std::printf("largest error / bound: %.3f\n", worst);
  // A bound that nothing comes near would test nothing; a thinned shard may have easy cases only.
  if (kThin == 1) {
    EXPECT_GT(worst, 0.02);
  }
}

// One channel of the query a thousand times the others: integer weights must keep enough bits.
TEST(Attention, OutlierQueries) {
  double worst = 0.0;
  for (const int bits : kBits) {
    for (const bool balanced : {true, false}) {
      AttentionCase c;
      c.n_rows = 300;
      c.n_tokens = 4;
      c.key_bits = bits;
      c.balanced = balanced;
      c.query_outlier = 1000.0;
      ExpectMatchesOracle(c, &worst);
    }
  }
}

TEST(Attention, KeysWithALargeConstantBias) {
  double worst = 0.0;
  for (const int bits : kBits) {
    AttentionCase c;
    c.key_dim = c.value_dim = 128;
    c.n_rows = 700;
    c.n_tokens = 3;
    c.n_heads = 4;
    c.key_bits = bits;
    c.keys = TileKind::kChannelBias;
    ExpectMatchesOracle(c, &worst);
  }
}

// Equal rows get equal weights, all of them the largest there is, and a channel that is the largest
// of its row has the highest code in every row: integer sums as large as they can be.
TEST(Attention, EqualRowsReachTheLimitsOfTheSums) {
  double worst = 0.0;
  for (const int bits : kBits) {
    for (const int group : {64, 128}) {
      AttentionCase c;
      c.n_rows = 600;
      c.n_heads = 5;
      c.group = group;
      c.key_bits = c.value_bits = bits;
      c.keys = c.values = TileKind::kEqualRows;
      ExpectMatchesOracle(c, &worst);
    }
  }
}

// Logits that grow from token to token, from less than the softmax's head room in a tile to more.
TEST(Attention, GrowingLogits) {
  double worst = 0.0;
  for (const double max_bias : {0.1, 1.0, 2.0, 4.0, 8.0}) {
    AttentionCase c;
    c.n_rows = 900;
    c.n_tokens = 2;
    c.n_heads = 4;
    c.mask = MaskKind::kDistance;
    c.max_bias = max_bias;
    ExpectMatchesOracle(c, &worst);
  }
}

// The bound is a worst case; what a call really adds to the error of the records is far smaller:
// 15-bit weights leave about 2^-14 of a value.
TEST(Attention, OrdinaryCallsAreGoodToOneInThousand) {
  for (const int bits : kBits) {
    AttentionCase c;
    c.key_dim = c.value_dim = 128;
    c.n_rows = 1024;
    c.key_bits = c.value_bits = bits;
    const AttentionSetup setup(c);
    for (const std::string& isa : AvailableIsas()) {
      const ForcedIsa forced(isa);
      const std::vector<float> out = setup.Run(1);
      const auto row = kvarn_reference::AttendRow(setup.Problem(), 0, 0, 0);
      const double norm = Distance(out.data(), std::vector<double>(128, 0.0));
      EXPECT_LT(Distance(out.data(), row.out), 1e-3 * norm) << isa << " " << bits << " bits";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, AttentionGrid, testing::Range(0, kShards));

}  // namespace
}  // namespace kvarn_test
