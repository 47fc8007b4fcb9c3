// SPDX-License-Identifier: Apache-2.0
//
// Random calls that write rows into planes: in order as a prompt or a decode step, streams one
// after the other or in turns, rolled back, begun again, overlapping, scattered, round a ring.
#ifndef KVARN_TESTS_CUDA_PLANES_ROWS_H_
#define KVARN_TESTS_CUDA_PLANES_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace kvarn_cuda_test {

class PlaneRows {
 public:
  PlaneRows(int64_t n_streams, int64_t n_rows, int64_t group, unsigned seed)
      : n_rows_(n_rows), group_(group), random_(seed), at_(static_cast<size_t>(n_streams)) {}

  // stream * n_rows + row of each row of the next call.
  std::vector<int64_t> Next() {
    kind_ = static_cast<int>(Draw(-kKinds, kKinds - 1));
    if (kind_ < 0) kind_ = kind_ % 3 == 0 ? kKinds - 1 : 0;  // often a step, or ready for one
    std::vector<std::vector<int64_t>> streams;
    for (size_t stream = 0; stream < at_.size(); ++stream) {
      streams.push_back(RowsOfStream(&at_[stream]));
      for (int64_t& row : streams.back()) row += static_cast<int64_t>(stream) * n_rows_;
    }
    std::vector<int64_t> rows;
    const int order = static_cast<int>(Draw(0, 5));
    if (order == 0) {  // in turns
      for (size_t i = 0; i < static_cast<size_t>(kMostRows); ++i) {
        for (const auto& stream : streams) {
          if (i < stream.size()) rows.push_back(stream[i]);
        }
      }
    } else {
      for (const auto& stream : streams) rows.insert(rows.end(), stream.begin(), stream.end());
    }
    if (order == 1 && Draw(0, 1) == 0) std::shuffle(rows.begin(), rows.end(), random_);
    if (order == 2) {  // rows that are no rows
      for (const int64_t row : {int64_t{-1}, static_cast<int64_t>(at_.size()) * n_rows_}) {
        rows.insert(rows.begin() + Draw(0, static_cast<int64_t>(rows.size()) - 1), row);
      }
    }
    return rows;
  }
  // What the last call was.
  const char* Kind() const {
    constexpr const char* kNames[kKinds] = {"a step",      "a prompt",     "a prompt anywhere",
                                            "rolled back", "begun again",  "overlapping",
                                            "scattered",   "a tile again", "to a border"};
    return kNames[kind_];
  }

  // Normal, with channels of different size in each call (so that balances differ), at times with
  // values that are not finite or out of range.
  std::vector<float> Values(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    float scale[kChannels];
    for (float& x : scale) x = std::exp2(normal(random_));
    for (size_t i = 0; i < count; ++i) values[i] = normal(random_) * scale[i % kChannels];
    const auto last = static_cast<int64_t>(count) - 1;
    for (int64_t i = Draw(-2, 3); i > 0; --i) {
      values[static_cast<size_t>(Draw(0, last))] = std::numeric_limits<float>::quiet_NaN();
      values[static_cast<size_t>(Draw(0, last))] = 1e6F;
    }
    return values;
  }

 private:
  static constexpr int kKinds = 9;
  static constexpr size_t kChannels = 64;
  static constexpr int64_t kMostRows = 1100;

  std::vector<int64_t> RowsOfStream(int64_t* at) {
    std::vector<int64_t> rows;
    const auto write = [&](int64_t count) {
      for (int64_t i = 0; i < count; ++i) rows.push_back((*at)++ % n_rows_);
    };
    const int64_t sizes[] = {kMostRows / 2, 8, 4 * group_, 4 * group_, 4 * group_};
    const int64_t most = sizes[Draw(0, 4)];
    const int64_t left = group_ - *at % group_;  // rows of the tile
    // A row alone opens a tile or, with the next tile full, seals one.
    const bool at_border = left == 1 || left == group_;
    if (kind_ == 0) write(at_border && Draw(0, 3) > 0 ? 1 : Draw(1, 6));
    if (kind_ == 8) write(std::max<int64_t>(left - 1, 1));
    if (kind_ == 1) write(Draw(1, most));
    if (kind_ == 2) {
      *at = Draw(0, n_rows_ - 1);
      write(Draw(1, most));
    }
    if (kind_ == 3) {
      *at = std::max<int64_t>(*at - Draw(1, 3 * group_), 0);
      write(Draw(1, most));
    }
    if (kind_ == 4) {
      *at = 0;
      write(Draw(1, most));
    }
    if (kind_ == 5) {
      write(Draw(1, most));
      *at = std::max<int64_t>(*at - Draw(1, 3 * group_), 0);
      write(Draw(1, most));
    }
    for (int64_t i = Draw(1, 10); kind_ == 6 && i > 0; --i) {
      rows.push_back(Draw(0, n_rows_ - 1));
    }
    if (kind_ == 7) {  // sealed within the call, then opened again
      write(Draw(3 * group_, 5 * group_));
      *at = std::max<int64_t>(*at - 4 * group_, 0);
      write(Draw(1, group_ / 2));
      write(Draw(1, group_));
    }
    return rows;
  }
  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  int64_t n_rows_, group_;
  std::mt19937 random_;
  std::vector<int64_t> at_;
  int kind_ = 0;
};

}  // namespace kvarn_cuda_test
#endif  // KVARN_TESTS_CUDA_PLANES_ROWS_H_
