// SPDX-License-Identifier: Apache-2.0
//
// Every instruction-set level and the reference write the same bytes: 10,000 random tiles.
#include <gtest/gtest.h>

#include <cstring>

#include "kvarn/kvarn.h"
#include "reference/reference_balance.h"
#include "reference/reference_encoder.h"
#include "support/formats.h"
#include "support/isa.h"
#include "support/tiles.h"

namespace kvarn_test {
namespace {

using kvarn_reference::Counts;
using kvarn_reference::EncoderInput;

struct Share {
  int head_dim;
  int tiles;
};
// Sums to 10,000; wide heads, which cost most, get fewer.
constexpr Share kShares[] = {{32, 1200}, {40, 1100}, {64, 1100},  {72, 900},  {80, 900},
                             {96, 900},  {112, 800}, {128, 1000}, {160, 600}, {184, 500},
                             {192, 500}, {256, 400}, {576, 100}};

// Sanitizers slow both sides down; the bytes are compared in full without them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kThin = 4;
#else
constexpr int kThin = 1;
#endif

struct Case {
  EncoderInput input;
  TileKind kind = TileKind::kGaussian;
  uint64_t seed = 0;
};

std::vector<int> Positions(Random* random, int n, int group) {
  std::vector<int> at;
  for (int g = 0; g < group; ++g) {
    const int wanted = n - static_cast<int>(at.size());
    if (random->Below(group - g) < wanted) at.push_back(g);
  }
  return at;
}

// Balance is defined over rows as a cache stores them, so over finite ones.
std::vector<int8_t> RandomBalance(Random* random, const EncoderInput& input) {
  const auto dim = static_cast<size_t>(input.shape.head_dim);
  if (random->Chance(0.25)) return {};
  std::vector<int8_t> balance(dim);
  if (random->Chance(0.3)) {
    const int reach = random->Chance(0.1) ? 127 : 24;
    for (int8_t& e : balance) e = static_cast<int8_t>(random->Below(2 * reach + 1) - reach);
    return balance;
  }
  std::vector<float> query_ms(dim);
  for (float& w : query_ms) w = static_cast<float>(RoughExp2(random->Normal() * 2.0));
  const float* known = random->Chance(0.5) ? query_ms.data() : nullptr;
  Counts ignored;
  const std::vector<float> rows =
      kvarn_reference::Sanitise(input.rows, input.shape.head_dim, &ignored);
  EXPECT_EQ(kvarn_balance(input.shape.head_dim, rows.data(), input.n_rows, known, balance.data()),
            KVARN_OK);
  EXPECT_EQ(balance,
            kvarn_reference::Balance(input.shape.head_dim, rows.data(), input.n_rows, known));
  return balance;
}

Case MakeCase(int head_dim, int index) {
  Case c;
  c.seed = static_cast<uint64_t>(head_dim) * 100000U + static_cast<uint64_t>(index);
  Random random(c.seed);
  c.input.shape.key = index % 2 == 0;
  c.input.shape.bits = kBits[index / 2 % 4];
  c.input.shape.group = kGroups[index / 8 % 2];
  c.input.shape.head_dim = head_dim;
  c.kind = static_cast<TileKind>(random.Below(kTileKinds));
  const int group = c.input.shape.group;
  c.input.n_rows = random.Chance(0.7) ? group : 1 + random.Below(group);
  c.input.rows = MakeTile(c.kind, &random, c.input.n_rows, head_dim);
  if (random.Chance(0.5)) c.input.position = Positions(&random, c.input.n_rows, group);
  if (random.Chance(0.02)) c.input.rows[random.Next() % c.input.rows.size()] = NAN;
  if (c.input.shape.key) c.input.balance = RandomBalance(&random, c.input);
  return c;
}

std::string FirstDifference(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] != want[i]) {
      return "byte " + std::to_string(i) + " of " + std::to_string(want.size()) + " is " +
             std::to_string(got[i]) + ", expected " + std::to_string(want[i]);
    }
  }
  return "";
}

void ExpectSameBytes(const Case& c, kvarn_order order, const std::vector<uint8_t>& want,
                     const Counts& want_counts) {
  const kvarn_format format = ToFormat(c.input.shape, order);
  std::vector<uint8_t> got(kvarn_record_bytes(&format), 0xA5);
  ASSERT_EQ(got.size(), want.size());
  kvarn_counts counts = {};
  const auto* position = c.input.position.empty() ? nullptr : c.input.position.data();
  const auto* balance = c.input.balance.empty() ? nullptr : c.input.balance.data();
  ASSERT_EQ(kvarn_encode(&format, c.input.rows.data(), c.input.n_rows, position, balance,
                         got.data(), &counts),
            KVARN_OK);
  EXPECT_EQ(FirstDifference(got, want), "");
  EXPECT_EQ(counts.rows_zeroed, want_counts.rows_zeroed);
  EXPECT_EQ(counts.values_saturated, want_counts.values_saturated);
}

class EncodeBytes : public testing::TestWithParam<Share> {};

TEST_P(EncodeBytes, EveryLevelMatchesTheReference) {
  const std::vector<std::string> isas = AvailableIsas();
  RecordProperty("isa", IsaList());
  std::printf("levels: %s; %d tiles\n", IsaList().c_str(), GetParam().tiles / kThin);
  for (int i = 0; i < GetParam().tiles / kThin && !HasFailure(); ++i) {
    const Case c = MakeCase(GetParam().head_dim, i);
    Counts counts;
    const kvarn_reference::Record record = kvarn_reference::Encode(c.input, &counts);
    const std::vector<uint8_t> portable = kvarn_reference::ToPortable(record);
    const std::vector<uint8_t> cpu = kvarn_reference::ToCpu(record);
    for (const std::string& isa : isas) {
      const ForcedIsa forced(isa);
      SCOPED_TRACE(isa + ", " + Describe(c.input.shape) + ", " + TileKindName(c.kind) + ", rows " +
                   std::to_string(c.input.n_rows) + ", seed " + std::to_string(c.seed));
      ExpectSameBytes(c, KVARN_ORDER_PORTABLE, portable, counts);
      ExpectSameBytes(c, KVARN_ORDER_CPU, cpu, counts);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDim, EncodeBytes, testing::ValuesIn(kShares),
                         [](const auto& share) { return std::to_string(share.param.head_dim); });

}  // namespace
}  // namespace kvarn_test
