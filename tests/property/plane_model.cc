// SPDX-License-Identifier: Apache-2.0
#include "property/plane_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/reference_balance.h"
#include "reference/reference_encoder.h"
#include "reference/reference_half.h"
#include "support/formats.h"

namespace kvarn_test {
namespace {

std::vector<uint16_t> StoredRow(const std::vector<float>& x, uint64_t* zeroed) {
  kvarn_reference::Counts counts;
  std::vector<uint16_t> row;
  for (const float value : kvarn_reference::Sanitise(x, static_cast<int>(x.size()), &counts)) {
    row.push_back(kvarn_reference::HalfFromFloat(value, nullptr));
  }
  *zeroed += counts.rows_zeroed;
  return row;
}

}  // namespace

PlaneModel::PlaneModel(const kvarn_plane_config& config)
    : config_(config),
      plane_(MakePlane(config).release(), PlaneDeleter()),
      memory_(kvarn_plane_bytes(plane_.get())),
      n_tiles_((config.n_rows + config.format.group - 1) / config.format.group),
      held_(static_cast<size_t>(config.n_rows),
            HalfRow(static_cast<size_t>(config.format.head_dim), 0)),
      written_(static_cast<size_t>(config.n_rows)),
      fresh_(static_cast<size_t>(config.n_rows)),
      tiles_(static_cast<size_t>(n_tiles_)) {}

PlaneModel::PlaneModel(const PlaneModel& other)
    : config_(other.config_),
      plane_(other.plane_),
      memory_(other.memory_.size()),
      n_tiles_(other.n_tiles_),
      held_(other.held_),
      written_(other.written_),
      fresh_(other.fresh_),
      tiles_(other.tiles_),
      run_(other.run_),
      queries_used_(other.queries_used_),
      writes_(other.writes_),
      seals_(other.seals_),
      reopens_(other.reopens_),
      zeroed_(other.zeroed_) {
  std::memcpy(memory_.data(), other.memory_.data(), memory_.size());
}

std::vector<TileIs> PlaneModel::States() const {
  std::vector<TileIs> states;
  for (int64_t tile = 0; tile < n_tiles_; ++tile) states.push_back(State(tile));
  return states;
}

int64_t PlaneModel::RowsOf(int64_t tile) const {
  const int64_t group = config_.format.group;
  return std::min(group, config_.n_rows - tile * group);
}

int64_t PlaneModel::SealedBefore(int64_t tile, const std::vector<TileIs>& states) const {
  for (int64_t i = tile - 1; i >= config_.sink_tiles; --i) {
    int rows = 0;
    for (int64_t row = 0; row < RowsOf(i); ++row) {
      const auto at = static_cast<size_t>(i * config_.format.group + row);
      rows += written_[at].empty() ? 0 : 1;
    }
    if (states[static_cast<size_t>(i)] != TileIs::kSealed) continue;
    if (rows >= config_.format.group / 4) return i;
  }
  return -1;
}

// s of a tile: that of the nearest sealed tile before it that has a quarter of its rows; else its
// own last one while rows of that record survive; else from its rows.
void PlaneModel::CheckBalance(int64_t tile, const std::vector<int8_t>& balance,
                              const std::vector<float>& rows, int n,
                              const std::vector<TileIs>& before) const {
  const int64_t was = SealedBefore(tile, before);
  const int64_t is = SealedBefore(tile, States());
  const TileModel& model = tiles_[static_cast<size_t>(tile)];
  if (was >= 0 || is >= 0) {
    // Others may have been sealed or opened by the same write, before or after this one: either
    // neighbour will do, and there is nothing to say when only one of the two was there.
    if (was < 0 || is < 0 || State(was) != TileIs::kSealed) return;
    EXPECT_TRUE(tiles_[static_cast<size_t>(was)].balance_before == balance ||
                tiles_[static_cast<size_t>(is)].balance == balance)
        << "tile " << tile << " took s from nowhere";
  } else if (model.survivors) {
    EXPECT_EQ(balance, model.balance) << "tile " << tile << " changed s under rows that survive";
  } else if (!queries_used_) {
    EXPECT_EQ(balance, kvarn_reference::Balance(head_dim(), rows.data(), n, nullptr))
        << "tile " << tile;
  }
}

void PlaneModel::OnSeal(int64_t tile, const std::vector<TileIs>& before) {
  const int64_t first = tile * config_.format.group;
  TileModel& model = tiles_[static_cast<size_t>(tile)];
  EXPECT_GE(tile, config_.sink_tiles) << "a sink was sealed";
  std::vector<float> rows;
  std::vector<int32_t> positions;
  model.survivors = false;
  for (int64_t i = 0; i < RowsOf(tile); ++i) {
    const auto at = static_cast<size_t>(first + i);
    if (written_[at].empty()) continue;
    model.survivors = model.survivors || !fresh_[at];
    positions.push_back(static_cast<int32_t>(i));
    for (const uint16_t half : held_[at]) rows.push_back(kvarn_reference::HalfToFloat(half));
  }
  ASSERT_FALSE(positions.empty()) << "an empty tile was sealed";
  const auto n = static_cast<int>(positions.size());
  const std::vector<uint8_t> record = PeekRecordBytes(plane_.get(), memory_.data(), tile);
  const std::vector<int8_t> balance = PeekRecord(plane_.get(), memory_.data(), tile).balance;
  std::vector<uint8_t> want(record.size());
  ASSERT_EQ(kvarn_encode(&config_.format, rows.data(), n, positions.data(),
                         balance.empty() ? nullptr : balance.data(), want.data(), nullptr),
            KVARN_OK);
  ASSERT_EQ(record, want) << "record of tile " << tile << " with " << n << " rows";
  if (!balance.empty()) CheckBalance(tile, balance, rows, n, before);

  std::vector<float> decoded(static_cast<size_t>(config_.format.group * head_dim()));
  ASSERT_EQ(kvarn_decode(&config_.format, record.data(), decoded.data()), KVARN_OK);
  for (const int32_t position : positions) {
    const auto at = static_cast<size_t>(first + position);
    fresh_[at] = false;
    for (size_t d = 0; d < held_[at].size(); ++d) {
      const size_t from = static_cast<size_t>(position) * held_[at].size() + d;
      held_[at][d] = kvarn_reference::HalfFromFloat(decoded[from], nullptr);
    }
  }
  model.balance = balance;
  seals_ += 1;
}

void PlaneModel::Write(int64_t row, const std::vector<float>& x, const std::vector<float>& query,
                       int n_query) {
  const std::vector<TileIs> before = States();
  for (TileModel& model : tiles_) model.balance_before = model.balance;
  const int64_t tile = row / config_.format.group;
  const auto at = static_cast<size_t>(row);
  ASSERT_EQ(
      kvarn_plane_write(plane_.get(), memory_.data(), row, x.data(),
                        query.empty() ? nullptr : query.data(), n_query, sizeof(float) * x.size()),
      KVARN_OK)
      << "row " << row;
  writes_ += 1;
  queries_used_ = queries_used_ || !query.empty();
  if (before[static_cast<size_t>(tile)] == TileIs::kSealed) reopens_ += 1;
  held_[at] = written_[at] = StoredRow(x, &zeroed_);
  fresh_[at] = true;
  if (!run_.empty() && row != (run_.back() + 1) % config_.n_rows) run_.clear();
  run_.push_back(row);

  const std::vector<TileIs> after = States();
  int64_t open = 0;
  for (int64_t i = 0; i < n_tiles_; ++i) {
    const auto index = static_cast<size_t>(i);
    open += after[index] == TileIs::kOpen ? 1 : 0;
    if (after[index] == TileIs::kSealed && (before[index] != TileIs::kSealed || i == tile)) {
      OnSeal(i, before);
    } else if (i != tile) {
      EXPECT_EQ(after[index], before[index]) << "tile " << i << " changed on a write of " << row;
    } else {
      EXPECT_EQ(after[index], TileIs::kOpen);
    }
  }
  const int64_t tail_tiles = (config_.tail_rows + config_.format.group - 1) / config_.format.group;
  EXPECT_LE(open, config_.sink_tiles + tail_tiles + 2);
}

void PlaneModel::Reset() {
  ASSERT_EQ(kvarn_plane_reset(plane_.get(), memory_.data()), KVARN_OK);
  for (HalfRow& row : held_) std::fill(row.begin(), row.end(), uint16_t{0});
  for (HalfRow& row : written_) row.clear();
  std::fill(fresh_.begin(), fresh_.end(), false);
  std::fill(tiles_.begin(), tiles_.end(), TileModel());
  run_.clear();
  queries_used_ = false;
  writes_ = seals_ = reopens_ = zeroed_ = 0;
}

void PlaneModel::CheckRows(int64_t first, int64_t n) const {
  const auto dim = static_cast<size_t>(head_dim());
  const size_t stride = dim + 5;  // what lies between two rows stays
  std::vector<uint16_t> out(static_cast<size_t>(n) * stride, 0x1234);
  ASSERT_EQ(kvarn_plane_read(plane_.get(), memory_.data(), first, n, out.data(),
                             stride * sizeof(uint16_t)),
            KVARN_OK);
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const auto from = out.begin() + static_cast<ptrdiff_t>(i * stride);
    const HalfRow got(from, from + static_cast<ptrdiff_t>(dim));
    ASSERT_EQ(got, held_[static_cast<size_t>(first) + i])
        << "row " << first + static_cast<int64_t>(i);
    for (size_t gap = dim; gap < stride; ++gap) ASSERT_EQ(out[i * stride + gap], 0x1234);
  }
}

void PlaneModel::CheckUnwritten() const {
  const auto dim = static_cast<ptrdiff_t>(head_dim());
  for (int64_t tile = 0; tile < n_tiles_; ++tile) {
    if (State(tile) != TileIs::kOpen) continue;
    const std::vector<uint16_t> exact = PeekExact(plane_.get(), memory_.data(), tile);
    for (int64_t i = 0; i < RowsOf(tile); ++i) {
      const int64_t row = tile * config_.format.group + i;
      const auto from = exact.begin() + static_cast<ptrdiff_t>(i) * dim;
      ASSERT_EQ(HalfRow(from, from + dim), held_[static_cast<size_t>(row)]) << "slot row " << row;
    }
  }
}

void PlaneModel::CheckStats() const {
  kvarn_plane_stats stats = {};
  ASSERT_EQ(kvarn_plane_get_stats(plane_.get(), memory_.data(), &stats), KVARN_OK);
  const std::vector<TileIs> states = States();
  EXPECT_EQ(stats.tiles_open, std::count(states.begin(), states.end(), TileIs::kOpen));
  EXPECT_EQ(stats.tiles_sealed, std::count(states.begin(), states.end(), TileIs::kSealed));
  EXPECT_EQ(stats.rows_written, writes_);
  EXPECT_EQ(stats.seals, seals_);
  EXPECT_EQ(stats.reopens, reopens_);
  EXPECT_EQ(stats.counts.rows_zeroed, zeroed_);
}

void PlaneModel::CheckTail() const {
  const size_t n = std::min(run_.size(), static_cast<size_t>(config_.tail_rows));
  for (size_t i = run_.size() - n; i < run_.size(); ++i) {
    const auto at = static_cast<size_t>(run_[i]);
    ASSERT_EQ(held_[at], written_[at]) << "row " << run_[i] << ", " << run_.size() - i
                                       << " rows before the end, is no longer exact";
  }
}

void PlaneModel::CheckSinks() const {
  for (int64_t row = 0; row < config_.sink_tiles * config_.format.group; ++row) {
    if (row >= config_.n_rows || written_[static_cast<size_t>(row)].empty()) continue;
    ASSERT_EQ(held_[static_cast<size_t>(row)], written_[static_cast<size_t>(row)]) << "sink";
  }
}

namespace {

// Balance moves error between channels: the norm of a row whose error is even after scaling by s
// grows by sqrt(mean s^2 mean s^-2), 1 for an even s.
double Unevenness(const std::vector<int8_t>& balance) {
  if (balance.empty()) return 1.0;
  double up = 0.0;
  double down = 0.0;
  for (const int8_t e : balance) {
    up += std::exp2(e / 4.0);
    down += std::exp2(-e / 4.0);
  }
  return std::sqrt(up * down) / static_cast<double>(balance.size());
}

}  // namespace

// The rows are Gaussian, so a seal leaves the relative error of quality_test.cc; half as much again
// is allowed for a small tile. A row of zeros (it held a NaN) up to doubles the error of keys of
// more than 2 bits: its small t makes the centring of the range overshoot. Tiles that hold rows
// from an earlier record are left out.
void PlaneModel::CheckErrors() const {
  constexpr double kError[] = {0, 0, 0.367, 0.197, 0.108, 0, 0, 0, 0.0065};
  for (int64_t tile = 0; tile < n_tiles_; ++tile) {
    const TileModel& model = tiles_[static_cast<size_t>(tile)];
    if (State(tile) != TileIs::kSealed || model.survivors) continue;
    double off = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < RowsOf(tile); ++i) {
      const auto at = static_cast<size_t>(tile * config_.format.group + i);
      for (size_t d = 0; d < written_[at].size(); ++d) {
        const double want = kvarn_reference::HalfToDouble(written_[at][d]);
        off += std::pow(kvarn_reference::HalfToDouble(held_[at][d]) - want, 2);
        norm += want * want;
      }
    }
    const double limit = 1.5 * kError[config_.format.bits] * Unevenness(model.balance);
    EXPECT_LE(std::sqrt(off), limit * std::sqrt(norm)) << "tile " << tile;
  }
}

}  // namespace kvarn_test
