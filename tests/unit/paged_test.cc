// SPDX-License-Identifier: Apache-2.0
//
// Steps over paged sequences against the double oracle, and what must not matter: chunking, drafts,
// threads, who completes a shared block.
#include <gtest/gtest.h>

#include <cmath>

#include "support/formats.h"
#include "support/isa.h"
#include "support/paged_cache.h"

namespace kvarn_test {
namespace {

PagedCase RandomCase(uint64_t seed) {
  Random random(seed * 104729);
  PagedCase c;
  c.seed = seed;
  constexpr int kDims[] = {32, 64, 80, 128};
  c.key_dim = random.Pick(std::vector<int>(kDims, kDims + 4));
  c.value_dim = random.Chance(0.7) ? c.key_dim : 64;
  c.n_kv_heads = 1 + random.Below(3);
  c.n_heads = c.n_kv_heads * (1 + random.Below(4));
  c.key_bits = kBits[random.Below(4)];
  c.value_bits = kBits[random.Below(4)];
  c.group = random.Chance(0.5) ? 64 : 128;
  constexpr kvarn_dtype kTypes[] = {KVARN_FP16, KVARN_BF16, KVARN_FP32};
  c.dtype = kTypes[random.Below(3)];
  c.draft = random.Below(3) * 3;
  c.page_rows = 1 + random.Below(70);
  c.softcap = random.Chance(0.2) ? 20.0F : 0.0F;
  return c;
}

// Random mixes: prompts in chunks, single tokens, drafts that are taken back, sequences that start
// anew or with blocks of others.
void RunRandomMix(const PagedCase& c, double* worst) {
  SCOPED_TRACE(Describe(c));
  constexpr int kSequences = 4;
  const int max_length = 4 * c.group;
  PagedCache cache(c, kSequences, max_length, 2);
  Random random(c.seed);
  for (int round = 0; round < 14 && !testing::Test::HasFailure(); ++round) {
    std::vector<PagedCache::Tokens> tokens;
    const bool draft = c.draft > 0 && random.Chance(0.3);
    for (int i = 0; i < kSequences; ++i) {
      const int room = max_length - cache.Length(i);
      int count = random.Chance(0.5) ? 1 + random.Below(4) : 1 + random.Below(2 * c.group);
      if (draft) count = 1 + random.Below(c.draft);
      if (random.Chance(0.15)) count = 0;
      tokens.push_back({i, std::min(count, room)});
    }
    cache.Step(tokens, draft);
    for (const PagedCache::Tokens& part : tokens) {
      if (draft) cache.TakeBack(part.sequence, part.count);
    }
    if (random.Chance(0.1)) cache.Restart(random.Below(kSequences));
  }
  *worst = std::max(*worst, cache.WorstShare());
}

TEST(Paged, RandomMixesMatchTheOracle) {
  double worst = 0.0;
  for (uint64_t seed = 1; seed <= 30 && !HasFailure(); ++seed) {
    const std::vector<std::string> isas = AvailableIsas();
    const ForcedIsa forced(isas[seed % isas.size()]);
    RunRandomMix(RandomCase(seed), &worst);
  }
  std::printf("largest error / bound: %.3f\n", worst);
  EXPECT_GT(worst, 0.02);
}

// Records of a sequence that comes in chunks of the given sizes, and then token by token.
std::vector<uint8_t> RecordsAfter(const PagedCase& c, const std::vector<int>& chunks, int length,
                                  bool with_drafts) {
  PagedCache cache(c, 1, length, 1);
  size_t next = 0;
  while (cache.Length(0) < length) {
    if (with_drafts) {
      const int count = std::min(c.draft, length - cache.Length(0));
      cache.Step({{0, count}}, true);
      cache.TakeBack(0, count);
    }
    const int wanted = next < chunks.size() ? chunks[next++] : 1;
    cache.Step({{0, std::min(wanted, length - cache.Length(0))}});
  }
  std::vector<uint8_t> all;
  for (int tile = 0; (tile + 1) * c.group <= length; ++tile) {
    const std::vector<uint8_t> records = cache.Records(0, tile);
    all.insert(all.end(), records.begin(), records.end());
  }
  return all;
}

TEST(Paged, RecordsDoNotDependOnChunksOrDrafts) {
  for (const kvarn_dtype dtype : {KVARN_FP16, KVARN_BF16, KVARN_FP32}) {
    PagedCase c;
    c.dtype = dtype;
    c.draft = 5;
    const int length = 3 * c.group + 10;
    const std::vector<uint8_t> whole = RecordsAfter(c, {length}, length, false);
    ASSERT_FALSE(whole.empty());
    EXPECT_EQ(whole, RecordsAfter(c, {}, length, false)) << "token by token";
    EXPECT_EQ(whole, RecordsAfter(c, {}, length, true)) << "with drafts";
    EXPECT_EQ(whole, RecordsAfter(c, {63, 1, 64, 1, 40, 33}, length, false)) << "chunks";
    EXPECT_EQ(whole, RecordsAfter(c, {60, 9, 100}, length, true)) << "chunks and drafts";
  }
}

TEST(Paged, OneBalanceASequenceFromAllItsFirstQueries) {
  for (const int chunk : {1, 50, 64, 200}) {
    PagedCase c;
    PagedCache cache(c, 1, 256, 1);
    while (cache.Length(0) < 256) {
      cache.Step({{0, std::min(chunk, 256 - cache.Length(0))}});
    }
    for (int head = 0; head < c.n_kv_heads; ++head) {
      const std::vector<int8_t> wanted = cache.WantedBalance(0, head);
      const std::vector<int8_t> first = cache.Balance(0, 0, head);
      // The reference sums in double: a step of an eighth of an octave may round the other way.
      for (size_t d = 0; d < wanted.size(); ++d) EXPECT_NEAR(first[d], wanted[d], 1);
      for (int tile = 1; tile < 4; ++tile) EXPECT_EQ(cache.Balance(0, tile, head), first);
    }
  }
}

// Sequence 0 begins with blocks that 1 completes in this very step, after blocks that 2 completes.
TEST(Paged, BlocksOfANeighbourInTheSameStep) {
  PagedCase c;
  c.group = 64;
  const int g = c.group;
  PagedCache cache(c, 3, 6 * g, 2);
  cache.Step({{2, 2 * g - 1}});
  cache.Share(1, 2, 2);
  // 2 completes its tile 1 in the step in which 1 and 0 read it, and 1 tile 2 which 0 reads.
  cache.Share(0, 1, 3);
  cache.Step({{0, 2 * g}, {1, g + 3}, {2, 1}});
  for (int head = 0; head < c.n_kv_heads; ++head) {
    const std::vector<int8_t> first = cache.Balance(2, 0, head);
    for (int tile = 0; tile < 5; ++tile) EXPECT_EQ(cache.Balance(0, tile, head), first) << tile;
  }
}

// A row that a model spoiled counts as zeros, whoever reads it, exact or packed.
TEST(Paged, RowsWithNanOrInfReachNobody) {
  for (const std::string& isa : AvailableIsas()) {
    const ForcedIsa forced(isa);
    for (const kvarn_dtype dtype : {KVARN_FP16, KVARN_BF16, KVARN_FP32}) {
      SCOPED_TRACE(isa + " " + std::to_string(dtype));
      PagedCase c;
      c.dtype = dtype;
      c.poison = 37;
      PagedCache cache(c, 1, 3 * c.group, 1);
      cache.Step({{0, 30}});  // the row is in a chunk beside tokens that must not see it
      cache.Step({{0, 20}});
      cache.Step({{0, 1}});  // in the ring
      cache.Step({{0, 2 * c.group}});
    }
  }
}

TEST(Paged, ThreadsDoNotChangeABit) {
  for (uint64_t seed = 40; seed < 42; ++seed) {
    const PagedCase c = RandomCase(seed);
    SCOPED_TRACE(Describe(c));
    std::vector<std::vector<uint8_t>> outputs;
    for (const int n_threads : {1, 2, 5}) {
      PagedCache cache(c, 3, 9 * c.group, n_threads);
      cache.Step({{0, 8 * c.group + 7}, {1, 3}, {2, c.group}});
      std::vector<uint8_t> all = cache.Output();
      cache.Step({{0, 1}, {1, 1}, {2, 1}});
      all.insert(all.end(), cache.Output().begin(), cache.Output().end());
      for (int tile = 0; tile < 8; ++tile) {
        const std::vector<uint8_t> records = cache.Records(0, tile);
        all.insert(all.end(), records.begin(), records.end());
      }
      outputs.push_back(all);
    }
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_EQ(outputs[0], outputs[2]);
  }
}

TEST(Paged, EmptyStepsAndEmptySequences) {
  PagedCase c;
  PagedCache cache(c, 2, 256, 3);
  cache.Step({});
  cache.Step({{0, 0}, {1, 0}});
  cache.Step({{0, 0}, {1, 130}});
  cache.Step({{0, 1}, {1, 0}});
}

TEST(Paged, IllegalStepsAreRefused) {
  PagedCase c;
  PagedCache cache(c, 2, 256, 1);
  cache.Step({{0, 3}, {1, 70}});
  const auto refused = [&](auto change, kvarn_status want) {
    kvarn_paged_step step = cache.LastStep();
    change(&step);
    EXPECT_EQ(kvarn_paged_check(&step), want);
    EXPECT_EQ(kvarn_paged_attention_workspace_bytes(&step, 1), 0U);
    uint8_t workspace[64];
    EXPECT_EQ(kvarn_paged_attention_begin(&step, workspace, 1), want);
  };
  using Step = kvarn_paged_step*;
  constexpr kvarn_status kArgument = KVARN_ERROR_ARGUMENT;
  constexpr kvarn_status kFormat = KVARN_ERROR_FORMAT;
  refused([](Step s) { s->key_format.order = KVARN_ORDER_CUDA; }, kFormat);
  refused([](Step s) { s->key_format.role = KVARN_VALUE; }, kFormat);
  refused([](Step s) { s->value_format.bits = 5; }, kFormat);
  refused([](Step s) { s->value_format.group = 128; }, kFormat);
  refused([](Step s) { s->n_sequences = -1; }, kArgument);
  refused([](Step s) { s->n_heads = 3; }, kArgument);
  refused([](Step s) { s->n_kv_heads = 0; }, kArgument);
  refused([](Step s) { s->lengths = nullptr; }, kArgument);
  refused([](Step s) { s->key_records = nullptr; }, kArgument);
  refused([](Step s) { s->ring_pages = nullptr; }, kArgument);
  refused([](Step s) { s->out = nullptr; }, kArgument);
  refused([](Step s) { s->ring_rows = s->key_format.group - 1; }, kArgument);
  refused([](Step s) { s->ring_history = 0; }, kArgument);
  refused([](Step s) { s->n_ring_pages -= 1; }, kArgument);
  refused([](Step s) { s->block_table_stride = 1; }, kArgument);
  const int32_t backwards[] = {3, 0, 73};
  refused([&](Step s) { s->query_start = backwards; }, kArgument);
  const int32_t short_lengths[] = {2, 70};
  refused([&](Step s) { s->lengths = short_lengths; }, kArgument);
  EXPECT_EQ(kvarn_paged_check(nullptr), kArgument);
  const kvarn_paged_step step = cache.LastStep();
  EXPECT_EQ(kvarn_paged_attention_begin(&step, nullptr, 1), kArgument);
  EXPECT_EQ(kvarn_paged_seal(&step, 0, 0, nullptr), kArgument);
  EXPECT_EQ(kvarn_paged_ring_row_bytes(&step), 2U * 128U * 4U);
  EXPECT_EQ(kvarn_paged_ring_row_bytes(nullptr), 0U);
}

}  // namespace
}  // namespace kvarn_test
