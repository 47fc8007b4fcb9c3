// SPDX-License-Identifier: Apache-2.0
//
// Random lives of planes against the model: appends, roll-backs, jumps, wraps, forks, resets.
#include <gtest/gtest.h>

#include <cmath>

#include "property/plane_model.h"
#include "support/formats.h"

namespace kvarn_test {
namespace {

struct Manner {
  bool queries = false;
  // One sequence that grows, wraps, rolls back and is reset, but never leaves a partial tile behind
  // to begin elsewhere. Partial tiles left behind hold slots, and with more of them than spare
  // slots full tiles are sealed before their tail is written (docs: "when slots run out").
  bool calm = false;
};

// A stream of operations. Two drivers with the same seed do the same.
class Driver {
 public:
  Driver(uint64_t seed, int64_t n_rows, int head_dim, Manner manner)
      : random_(seed), n_rows_(n_rows), head_dim_(head_dim), manner_(manner), cursors_(1, 0) {
    const int sequences = !manner.calm && random_.Chance(0.4) ? 2 + random_.Below(2) : 1;
    for (int i = 1; i < sequences; ++i) cursors_.push_back(random_.Below(static_cast<int>(n_rows)));
  }

  void Step(PlaneModel* model) {
    const int what = random_.Below(manner_.calm ? 90 : 100);
    if (manner_.calm && random_.Chance(0.01)) {
      model->Reset();
      cursors_[0] = 0;
      depth_ = 0;
    }
    if (what < 60) {
      Append(model, random_.Chance(0.2) ? 1 + random_.Below(300) : 1 + random_.Below(40));
    } else if (what < 80) {  // roll back and write other rows
      int64_t back = 1 + random_.Below(random_.Chance(0.7) ? 20 : 300);
      if (manner_.calm) back = std::min(back, depth_);
      depth_ -= back;
      cursors_[0] = Wrap(cursors_[0] - back);
      Append(model, 1 + random_.Below(static_cast<int>(back) + 10));
    } else if (what < 90) {  // rewrite recent rows in place
      const int64_t end = cursors_[0];
      int64_t back = 1 + random_.Below(8);
      if (manner_.calm) back = std::min(back, depth_);
      cursors_[0] = Wrap(end - back);
      depth_ -= back;
      while (cursors_[0] != end) Append(model, 1);
    } else if (what < 95) {  // a new request
      cursors_[0] = 0;
      Append(model, 1 + random_.Below(60));
    } else if (what < 97) {
      cursors_[0] = random_.Below(static_cast<int>(n_rows_));
      Append(model, 1 + random_.Below(10));
    } else if (what < 98) {
      model->Reset();
      for (int64_t& cursor : cursors_) cursor = 0;
    } else {
      Interleave(model, 1 + random_.Below(40));
    }
    if (cursors_.size() > 1 && random_.Chance(0.5)) Interleave(model, 1 + random_.Below(20));
  }

 private:
  int64_t Wrap(int64_t row) const { return (row % n_rows_ + n_rows_) % n_rows_; }

  void WriteOne(PlaneModel* model, int64_t* cursor) {
    std::vector<float> x;
    for (int d = 0; d < head_dim_; ++d) x.push_back(static_cast<float>(random_.Normal()));
    if (random_.Chance(0.002)) x[random_.Next() % x.size()] = NAN;
    std::vector<float> query;
    const int n_query = 1 + random_.Below(3);
    if (manner_.queries && random_.Chance(0.9)) {
      for (int i = 0; i < n_query * head_dim_; ++i) {
        query.push_back(static_cast<float>(random_.Normal()));
      }
    }
    if (!testing::Test::HasFatalFailure()) model->Write(*cursor, x, query, n_query);
    *cursor = Wrap(*cursor + 1);
  }
  void Append(PlaneModel* model, int n) {
    depth_ = std::min(depth_ + n, n_rows_);
    for (int i = 0; i < n; ++i) WriteOne(model, &cursors_[0]);
  }
  void Interleave(PlaneModel* model, int n) {
    for (int i = 0; i < n; ++i) {
      for (int64_t& cursor : cursors_) WriteOne(model, &cursor);
    }
  }

  Random random_;
  int64_t n_rows_;
  int head_dim_;
  Manner manner_;
  int64_t depth_ = 0;  // rows before the first cursor that have been written, at least
  std::vector<int64_t> cursors_;
};

kvarn_plane_config RandomConfig(Random* random) {
  kvarn_plane_config config = {};
  config.format.role = random->Chance(0.6) ? KVARN_KEY : KVARN_VALUE;
  config.format.mode = random->Chance(0.85) ? KVARN_BALANCED : KVARN_PUBLISHED;
  config.format.order = KVARN_ORDER_CPU;
  config.format.bits = kBits[random->Below(4)];
  config.format.group = kGroups[random->Below(2)];
  constexpr int kHeadDims[] = {32, 32, 40, 64, 80};
  config.format.head_dim = kHeadDims[random->Below(5)];
  config.n_rows = (5 + random->Below(5)) * config.format.group;
  if (random->Chance(0.5)) config.n_rows -= 1 + random->Below(config.format.group - 1);
  constexpr int kTails[] = {0, 64, 128, 256};
  config.tail_rows = kTails[random->Below(4)];
  config.sink_tiles = random->Below(3);
  return config;
}

std::string DescribeLife(const kvarn_plane_config& config, const Manner& manner, uint64_t seed) {
  return Describe(ToShape(config.format)) + " rows " + std::to_string(config.n_rows) + " tail " +
         std::to_string(config.tail_rows) + " sinks " + std::to_string(config.sink_tiles) +
         (manner.queries ? " with queries" : "") + (manner.calm ? " calm" : "") + " seed " +
         std::to_string(seed);
}

void Check(const PlaneModel& model, Random* random) {
  model.CheckStats();
  model.CheckSinks();
  model.CheckUnwritten();
  model.CheckTail();
  if (random->Chance(0.1)) {
    model.CheckRows(0, model.n_rows());
    model.CheckErrors();
  } else {
    const int64_t first = random->Below(static_cast<int>(model.n_rows()));
    model.CheckRows(first, std::min<int64_t>(model.n_rows() - first, 1 + random->Below(100)));
  }
}

constexpr int kShards = 8;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kLives = 6;
#else
constexpr int kLives = 12;
#endif
constexpr int kSteps = 80;

class PlaneLife : public testing::TestWithParam<int> {};

TEST_P(PlaneLife, FollowsTheModel) {
  uint64_t seals = 0;
  uint64_t reopens = 0;
  for (int life = 0; life < kLives && !HasFailure(); ++life) {
    const auto seed = static_cast<uint64_t>(GetParam() * 1000 + life);
    Random random(seed);
    const kvarn_plane_config config = RandomConfig(&random);
    const Manner manner = {.queries = random.Chance(0.5), .calm = random.Chance(0.5)};
    SCOPED_TRACE(DescribeLife(config, manner, seed));
    PlaneModel model(config);
    Driver driver(seed, config.n_rows, config.format.head_dim, manner);
    const int fork_at = random.Below(kSteps);
    for (int step = 0; step < kSteps && !HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      if (step == fork_at) {
        // A fork goes its own way, then dies; the original must not notice. A second one does what
        // the original does, and must hold the same bytes.
        PlaneModel other(model);
        Driver elsewhere(seed + 77, config.n_rows, config.format.head_dim, manner);
        PlaneModel twin(model);
        Driver twin_driver = driver;
        for (int i = 0; i < 5 && !HasFailure(); ++i) {
          elsewhere.Step(&other);
          twin_driver.Step(&twin);
          driver.Step(&model);
        }
        Check(other, &random);
        EXPECT_EQ(std::memcmp(twin.memory(), model.memory(), kvarn_plane_bytes(model.plane())), 0);
      }
      driver.Step(&model);
      Check(model, &random);
    }
    model.CheckRows(0, model.n_rows());
    model.CheckErrors();
    seals += model.seals();
    reopens += model.reopens();
  }
  std::printf("seals %llu, reopens %llu (since the last reset)\n",
              static_cast<unsigned long long>(seals), static_cast<unsigned long long>(reopens));
}

INSTANTIATE_TEST_SUITE_P(Shard, PlaneLife, testing::Range(0, kShards));

}  // namespace
}  // namespace kvarn_test
