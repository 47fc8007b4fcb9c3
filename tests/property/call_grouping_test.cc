// SPDX-License-Identifier: Apache-2.0
//
// Attention does not depend on how a host groups tokens into calls: random lives of planes, written
// in calls of random sizes with the attention of each call behind it, against the same tokens one
// by one.
#include <gtest/gtest.h>

#include <cmath>

#include "property/grouped_cache.h"
#include "support/isa.h"

namespace kvarn_test {
namespace {

enum class Walk {
  kAppend,     // one sequence a stream that grows, rolls back and goes round a ring
  kTightRing,  // likewise, and old rows of the tile that is being overwritten are still visible
  kUnified,    // several sequences take turns in one stream, each in a tile of its own
};

struct Life {
  GroupedShape shape;
  Walk walk = Walk::kAppend;
  int window = 0;    // positions that a token sees, its own included
  int max_call = 0;  // tokens of a call and stream
};

Life RandomLife(Random* random, Walk walk) {
  constexpr int kPresets[][2] = {{8, 8}, {8, 4}, {4, 4}, {4, 2}, {3, 2}, {2, 2}};
  constexpr int kTails[] = {0, 64, 100, 128, 192};
  Life life;
  life.walk = walk;
  GroupedShape& shape = life.shape;
  const auto& bits = kPresets[random->Below(6)];
  shape.key_bits = bits[0];
  shape.value_bits = bits[1];
  shape.group = random->Chance(0.7) ? 64 : 128;
  shape.key_dim = random->Chance(0.5) ? 32 : 64;
  shape.value_dim = random->Chance(0.5) ? 32 : 40;
  shape.n_kv_heads = 1 + random->Below(2);
  shape.n_heads = shape.n_kv_heads * (1 + random->Below(3));
  shape.key_tail = kTails[random->Below(5)];
  shape.value_tail = random->Chance(0.5) ? shape.key_tail : kTails[random->Below(5)];
  shape.sink_tiles = random->Below(2);
  shape.n_streams = walk == Walk::kUnified ? 1 : 1 + random->Below(3);
  // At most 7 tiles: then no call is cut into ranges of tiles, and the order of all sums is fixed.
  shape.n_rows = 7 * shape.group - random->Below(shape.group);
  life.max_call = 1 + random->Below(3 * shape.group);
  life.window = shape.n_rows - life.max_call - 1;
  if (walk == Walk::kAppend) life.window -= shape.group;
  if (walk == Walk::kUnified) life.max_call = 1 + random->Below(60);
  return life;
}

// Where the tokens of one call go: rows of each stream, and what their masks let them see.
class Host {
 public:
  Host(const Life& life, Random* random) : life_(life), random_(random) {
    const auto n = static_cast<size_t>(life.shape.n_rows);
    position_.assign(static_cast<size_t>(life.shape.n_streams), std::vector<int64_t>(n, -1));
    sequence_ = std::vector<int>(n, 0);
  }

  GroupedCall Next() {
    if (life_.walk == Walk::kUnified) return NextUnified();
    if (random_->Chance(0.3)) RollBack();
    GroupedCall call;
    call.n_tokens = 1 + random_->Below(life_.max_call);
    for (auto& positions : position_) {
      for (int t = 0; t < call.n_tokens; ++t) {
        const int64_t position = next_ + t;
        const int64_t row = position % life_.shape.n_rows;
        positions[static_cast<size_t>(row)] = position;
        call.rows.push_back(row);
      }
    }
    for (const auto& positions : position_) {
      for (int t = 0; t < call.n_tokens; ++t) {
        for (const int64_t position : positions) {
          const int64_t own = next_ + t;
          call.visible.push_back(position >= 0 && position <= own && position > own - life_.window);
        }
      }
    }
    next_ += call.n_tokens;
    return call;
  }

 private:
  void RollBack() {
    const int64_t back = std::min<int64_t>(next_, random_->Below(random_->Chance(0.7) ? 40 : 200));
    next_ -= back;
    for (auto& positions : position_) {
      for (int64_t& position : positions) position = position >= next_ ? -1 : position;
    }
  }

  // Three sequences, each in two tiles of its own behind the sink, round and round: more tiles than
  // slots, so that tiles are sealed partial and reopened, several times in a call.
  GroupedCall NextUnified() {
    GroupedCall call;
    call.n_tokens = 1 + random_->Below(life_.max_call);
    const int group = life_.shape.group;
    auto& positions = position_[0];
    std::vector<int64_t> own;
    std::vector<int> sequence;
    for (int t = 0; t < call.n_tokens; ++t) {
      const int who = random_->Below(3);
      if (used_[who] == 2 * group) used_[who] = 0;  // a new request
      if (used_[who] == 0) Forget(who);
      const int64_t row = static_cast<int64_t>(2 * who) * group + used_[who];
      positions[static_cast<size_t>(row)] = next_;
      sequence_[static_cast<size_t>(row)] = who;
      used_[who] += 1;
      call.rows.push_back(row);
      own.push_back(next_++);
      sequence.push_back(who);
    }
    for (size_t t = 0; t < own.size(); ++t) {
      for (size_t row = 0; row < positions.size(); ++row) {
        call.visible.push_back(positions[row] >= 0 && positions[row] <= own[t] &&
                               sequence_[row] == sequence[t]);
      }
    }
    return call;
  }
  void Forget(int who) {
    for (size_t row = 0; row < sequence_.size(); ++row) {
      if (sequence_[row] == who) position_[0][row] = -1;
    }
  }

  Life life_;
  Random* random_;
  int64_t next_ = 0;                            // position of the next token
  std::vector<std::vector<int64_t>> position_;  // that each row of each stream holds; -1: none
  std::vector<int> sequence_;                   // unified: whose row it is
  int used_[3] = {0, 0, 0};                     // unified: rows of each sequence
};

// Where a tile is reopened in the midst of a call, tokens before that moment read its decoded rows,
// rounded to fp16, in place of the record that they would have read one by one. That moves k and v
// by 2^-11 of themselves, and the record's own arithmetic (weights of 15 bits) is within 2^-13. A
// score then moves by |q| |k| scale times the sum of the two at most, its probability by twice
// that (the denominator moves too), and the output by that and the error of v, times the largest v.
float Tolerance(const GroupedCache& cache) {
  const double step = std::ldexp(1.0, -11) + std::ldexp(1.0, -13);
  const double score = cache.LargestScore() * step;
  return static_cast<float>(cache.LargestValue() * (2.0 * score + step));
}

class CallGrouping : public testing::TestWithParam<Walk> {};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kLives = 4;
#else
constexpr int kLives = 16;
#endif

TEST_P(CallGrouping, DoesNotMatter) {
  int kept = 0;
  for (int life_index = 0; life_index < kLives && !HasFailure(); ++life_index) {
    Random random(static_cast<uint64_t>(life_index) + 100U * static_cast<uint64_t>(GetParam()));
    const Life life = RandomLife(&random, GetParam());
    SCOPED_TRACE(Describe(life.shape) + " window " + std::to_string(life.window) + " calls of " +
                 std::to_string(life.max_call) + " life " + std::to_string(life_index));
    const std::vector<std::string> isas = AvailableIsas();
    const ForcedIsa forced(isas[static_cast<size_t>(life_index) % isas.size()]);
    SCOPED_TRACE(kvarn_isa_name());
    Host host(life, &random);
    GroupedCache together(life.shape);
    GroupedCache alone(life.shape);
    for (int64_t tokens = 0; tokens < 2 * life.shape.n_rows && !HasFailure();) {
      const GroupedCall call = host.Next();
      tokens += call.n_tokens;
      const TokenData data = RandomTokens(life.shape, call.n_tokens, &random);
      const std::vector<float> got = together.Run(call, data);
      const std::vector<float> want = alone.RunOneByOne(call, data);
      ASSERT_TRUE(together.SameBytes(alone));
      const float tolerance = life.walk == Walk::kAppend ? 0.0F : Tolerance(alone);
      for (size_t i = 0; i < got.size() && !HasFailure(); ++i) {
        ASSERT_NEAR(got[i], want[i], tolerance) << "element " << i << " of " << got.size();
      }
    }
    kept += together.copies_used();
  }
  EXPECT_GT(kept, kLives);
  std::printf("tiles sealed within calls: %d\n", kept);
}

INSTANTIATE_TEST_SUITE_P(Walks, CallGrouping,
                         testing::Values(Walk::kAppend, Walk::kTightRing, Walk::kUnified));

// Without room for copies all tokens read the record, as without the block.
TEST(CallGrouping, WithoutRoomTilesAreReadAsRecords) {
  GroupedShape shape;
  shape.n_rows = 448;
  shape.key_tail = shape.value_tail = 0;
  GroupedCall call;
  call.n_tokens = 300;
  for (int t = 0; t < call.n_tokens; ++t) {
    call.rows.push_back(t);
    for (int row = 0; row < shape.n_rows; ++row) call.visible.push_back(row <= t);
  }
  Random random(5);
  const TokenData data = RandomTokens(shape, call.n_tokens, &random);
  const auto run = [&](int room) { return GroupedCache(shape, room).Run(call, data); };
  const std::vector<float> records = run(GroupedCache::kNoBlock);
  EXPECT_EQ(run(0), records);
  const std::vector<float> one = run(1);  // the first tile only, whose rows come first
  const std::vector<float> all = run(8);
  EXPECT_NE(one, records);
  EXPECT_NE(one, all);
  const auto first = static_cast<ptrdiff_t>(shape.n_heads * shape.value_dim * shape.group);
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + first, all.begin()));
}

}  // namespace
}  // namespace kvarn_test
