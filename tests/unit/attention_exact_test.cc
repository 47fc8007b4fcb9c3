// SPDX-License-Identifier: Apache-2.0
//
// Properties of attention that hold bit for bit: threads, poisoned memory, sharing of planes, blind
// rows, empty caches.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/attention_bound.h"
#include "support/attention_setup.h"
#include "support/isa.h"

namespace kvarn_test {
namespace {

std::vector<AttentionCase> SomeCases() {
  std::vector<AttentionCase> cases;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Random random(seed);
    AttentionCase c;
    c.seed = seed;
    c.key_dim = random.Chance(0.5) ? 64 : 80;
    c.value_dim = random.Chance(0.5) ? 64 : 128;
    c.n_kv_heads = 1 + random.Below(3);
    c.n_heads = c.n_kv_heads * (1 + random.Below(5));
    c.n_streams = 1 + random.Below(2);
    c.n_tokens = seed % 3 == 0 ? 40 : 1 + random.Below(3);
    c.n_rows = seed % 2 == 0 ? 1500 + random.Below(300) : 1 + random.Below(400);
    c.key_bits = 2 + 2 * random.Below(2);
    c.value_bits = 3;
    c.group = random.Chance(0.5) ? 64 : 128;
    c.key_tail = random.Chance(0.5) ? 128 : 0;
    c.sink_tiles = random.Below(2);
    c.mask = static_cast<MaskKind>(random.Below(6));
    c.mask_per_head = random.Chance(0.5);
    c.sinks = random.Chance(0.5);
    cases.push_back(c);
  }
  return cases;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(AttentionExact, ThreadsDoNotChangeABit) {
  for (const AttentionCase& c : SomeCases()) {
    SCOPED_TRACE(Describe(c));
    const AttentionSetup setup(c);
    for (const std::string& isa : AvailableIsas()) {
      const ForcedIsa forced(isa);
      const std::vector<float> one = setup.Run(1);
      for (const int n : {2, 3, 7, 1}) {
        EXPECT_TRUE(SameBits(one, setup.Run(n))) << isa << ", " << n << " threads";
      }
    }
  }
}

// Slots and records of an empty plane may hold anything: 0xFF bytes are NaNs as fp16.
TEST(AttentionExact, PoisonedStoresChangeNothing) {
  for (AttentionCase c : SomeCases()) {
    SCOPED_TRACE(Describe(c));
    c.poison = 0;
    const AttentionSetup clean(c);
    for (const int poison : {0xFF, 0x7E, 0xFC}) {
      c.poison = poison;
      const AttentionSetup poisoned(c);
      for (const std::string& isa : AvailableIsas()) {
        const ForcedIsa forced(isa);
        EXPECT_TRUE(SameBits(clean.Run(2), poisoned.Run(2))) << isa << ", byte " << poison;
      }
    }
  }
}

// Lengths at which tiles begin and end, with the rest of the plane poisoned.
TEST(AttentionExact, PoisonAtEveryBorder) {
  for (const int rows : {1, 63, 64, 65, 127, 128, 129, 4090}) {
    AttentionCase c;
    c.n_rows = rows;
    c.value_bits = 4;
    const std::vector<float> clean = AttentionSetup(c).Run(1);
    c.poison = 0xFF;
    const std::vector<float> poisoned = AttentionSetup(c).Run(1);
    EXPECT_TRUE(SameBits(clean, poisoned)) << rows;
    for (const float x : poisoned) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(AttentionExact, NoRowsGiveZeros) {
  AttentionCase c;
  c.n_heads = 3;
  c.n_tokens = 2;
  for (const bool sinks : {false, true}) {
    c.sinks = sinks;
    const AttentionSetup setup(c);
    std::vector<float> out(setup.OutSize(), NAN);
    kvarn_attention call = setup.Call(out.data());
    call.n_rows = 0;
    Block workspace(kvarn_attention_workspace_bytes(&call, 2), 0xFF);
    ASSERT_EQ(kvarn_attention_begin(&call, workspace.data(), 2), KVARN_OK);
    kvarn_attention_run(&call, workspace.data(), 0, 2);
    kvarn_attention_run(&call, workspace.data(), 1, 2);
    for (size_t i = 0; i < out.size(); ++i) {
      if (i % 67 < 64) {
        EXPECT_EQ(out[i], 0.0F);
      }
    }
  }
}

// A window that leaves most splits without a visible row.
TEST(AttentionExact, EmptySplitsAndBlindRows) {
  AttentionCase c;
  c.n_rows = 4099;
  c.n_tokens = 3;
  c.mask = MaskKind::kWindow;
  const AttentionSetup window(c);
  AttentionBound bound(window);
  const std::vector<float> out = window.Run(3);
  for (int token = 0; token < c.n_tokens; ++token) {
    const auto row = kvarn_reference::AttendRow(window.Problem(), 0, token, 0);
    double off = 0.0;
    for (size_t d = 0; d < 64; ++d) {
      off += std::pow(out[static_cast<size_t>(token) * 64 + d] - row.out[d], 2);
    }
    EXPECT_LE(std::sqrt(off), bound.OfRow(0, token, 0, row));
  }
  c.mask = MaskKind::kSomeRows;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    c.seed = seed;
    c.n_rows = static_cast<int>(seed * 13);
    for (const float x : AttentionSetup(c).Run(1)) EXPECT_TRUE(std::isfinite(x));
  }
}

// One workspace serves calls of other shapes, one after the other.
TEST(AttentionExact, WorkspaceIsReusable) {
  const std::vector<AttentionCase> cases = SomeCases();
  std::vector<std::unique_ptr<AttentionSetup>> setups;
  size_t bytes = 0;
  for (const AttentionCase& c : cases) {
    setups.push_back(std::make_unique<AttentionSetup>(c));
    std::vector<float> out(setups.back()->OutSize());
    const kvarn_attention call = setups.back()->Call(out.data());
    bytes = std::max(bytes, kvarn_attention_workspace_bytes(&call, 2));
  }
  Block workspace(bytes, 0xFF);
  std::vector<std::vector<float>> first;
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < setups.size(); ++i) {
      std::vector<float> out(setups[i]->OutSize(), 7.0F);
      const kvarn_attention call = setups[i]->Call(out.data());
      ASSERT_EQ(kvarn_attention_begin(&call, workspace.data(), 2), KVARN_OK);
      kvarn_attention_run(&call, workspace.data(), 1, 2);
      kvarn_attention_run(&call, workspace.data(), 0, 2);
      if (round == 0) first.push_back(out);
      EXPECT_TRUE(SameBits(out, first[i])) << Describe(cases[i]);
    }
  }
}

// An early row keeps its weights when others are added that it does not see.
TEST(AttentionExact, InvisibleRowsOfAnotherContentChangeNothing) {
  AttentionCase c;
  c.n_rows = 200;
  c.group = 64;
  c.n_tokens = 4;
  c.mask = MaskKind::kCausal;
  AttentionSetup setup(c);
  std::vector<float> out(setup.OutSize());
  kvarn_attention call = setup.Call(out.data());
  call.n_rows = 197;  // the first query row sees rows 0..196
  call.n_tokens = 1;
  Block workspace(kvarn_attention_workspace_bytes(&call, 1));
  ASSERT_EQ(kvarn_attention_begin(&call, workspace.data(), 1), KVARN_OK);
  kvarn_attention_run(&call, workspace.data(), 0, 1);
  const std::vector<float> all = setup.Run(1);
  for (size_t d = 0; d < 64; ++d) EXPECT_NEAR(out[d], all[d], 1e-6);
}

TEST(AttentionExact, IllegalCallsAreRefused) {
  AttentionCase c;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.mask = MaskKind::kCausal;
  const AttentionSetup setup(c);
  std::vector<float> out(setup.OutSize());
  Block workspace(1 << 20);
  const auto refused = [&](auto change, kvarn_status want) {
    kvarn_attention call = setup.Call(out.data());
    change(&call);
    EXPECT_EQ(kvarn_attention_workspace_bytes(&call, 1), 0U);
    EXPECT_EQ(kvarn_attention_begin(&call, workspace.data(), 1), want);
  };
  using Call = kvarn_attention*;
  constexpr kvarn_status kArgument = KVARN_ERROR_ARGUMENT;
  refused([](Call a) { a->key_plane = nullptr; }, kArgument);
  refused([](Call a) { a->value_plane = nullptr; }, kArgument);
  refused([](Call a) { a->keys = nullptr; }, kArgument);
  refused([](Call a) { a->values = nullptr; }, kArgument);
  refused([](Call a) { a->query = nullptr; }, kArgument);
  refused([](Call a) { a->out = nullptr; }, kArgument);
  for (const int bad : {0, -1}) {
    refused([&](Call a) { a->n_streams = bad; }, kArgument);
    refused([&](Call a) { a->n_tokens = bad; }, kArgument);
    refused([&](Call a) { a->n_heads = bad; }, kArgument);
    refused([&](Call a) { a->n_kv_heads = bad; }, kArgument);
    refused([&](Call a) { a->mask_heads = bad; }, kArgument);
    refused([&](Call a) { a->mask_streams = bad; }, kArgument);
  }
  refused([](Call a) { a->n_heads = 3; }, kArgument);
  refused(
      [](Call a) {  // 2^64 blocks
        a->n_streams = a->n_heads = a->n_kv_heads = 1 << 30;
        a->n_tokens = 512;
      },
      kArgument);
  refused([](Call a) { a->n_rows = -1; }, kArgument);
  refused([](Call a) { a->n_rows = 1000000; }, kArgument);
  refused([](Call a) { std::swap(a->key_plane, a->value_plane); }, KVARN_ERROR_FORMAT);

  kvarn_plane_config other = {{KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CPU, 4, 64, 64}, 256, 0, 0};
  const PlanePtr other_group = MakePlane(other);
  refused([&](Call a) { a->value_plane = other_group.get(); }, KVARN_ERROR_FORMAT);
  kvarn_plane_config device = {
      {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, c.value_bits, c.group, c.value_dim},
      c.n_rows,
      0,
      0};
  const PlanePtr device_plane = MakePlane(device);
  refused([&](Call a) { a->value_plane = device_plane.get(); }, KVARN_ERROR_FORMAT);

  const kvarn_attention good = setup.Call(out.data());
  EXPECT_EQ(kvarn_attention_workspace_bytes(nullptr, 1), 0U);
  EXPECT_EQ(kvarn_attention_workspace_bytes(&good, 0), 0U);
  EXPECT_EQ(kvarn_attention_begin(nullptr, workspace.data(), 1), kArgument);
  EXPECT_EQ(kvarn_attention_begin(&good, nullptr, 1), kArgument);
  EXPECT_EQ(kvarn_attention_begin(&good, workspace.data(), 0), kArgument);
  EXPECT_EQ(kvarn_attention_begin(&good, workspace.data(), 1), KVARN_OK);
}

}  // namespace
}  // namespace kvarn_test
