// SPDX-License-Identifier: Apache-2.0
//
// A plane and, beside it, what it should hold: plain rows. Every write is checked.
#ifndef KVARN_TESTS_PROPERTY_PLANE_MODEL_H_
#define KVARN_TESTS_PROPERTY_PLANE_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kvarn/kvarn.h"
#include "support/plane_block.h"
#include "support/plane_peek.h"
#include "support/random.h"

namespace kvarn_test {

class PlaneModel {
 public:
  explicit PlaneModel(const kvarn_plane_config& config);
  // A copy of the memory, as a fork of a sequence makes it.
  PlaneModel(const PlaneModel& other);

  // Writes a row through the library, follows what happened to the tiles, and checks it: state
  // changes, bytes of new records, bound on open tiles. `query` may be empty.
  void Write(int64_t row, const std::vector<float>& x, const std::vector<float>& query,
             int n_query);
  void Reset();

  // Rows read back exactly as the model has them.
  void CheckRows(int64_t first, int64_t n) const;
  // Rows of open tiles that were never written are zeros, for attention without a mask.
  void CheckUnwritten() const;
  // Counters against the model's own.
  void CheckStats() const;
  // The last min(tail, run) rows of a run of consecutive rows are what was written, not decoded.
  void CheckTail() const;
  void CheckSinks() const;
  // Decoded rows are near what was written; see the source for the bound.
  void CheckErrors() const;

  int64_t n_rows() const { return config_.n_rows; }
  int head_dim() const { return config_.format.head_dim; }
  const kvarn_plane* plane() const { return plane_.get(); }
  const uint8_t* memory() const { return memory_.data(); }
  uint64_t seals() const { return seals_; }
  uint64_t reopens() const { return reopens_; }

 private:
  using HalfRow = std::vector<uint16_t>;
  struct TileModel {
    bool survivors = false;              // rows that came out of a record are still in it
    std::vector<int8_t> balance;         // of its last record
    std::vector<int8_t> balance_before;  // the same before the write that is being checked
  };

  TileIs State(int64_t tile) const { return PeekState(plane_.get(), memory_.data(), tile); }
  std::vector<TileIs> States() const;
  int64_t RowsOf(int64_t tile) const;
  int64_t SealedBefore(int64_t tile, const std::vector<TileIs>& states) const;
  void OnSeal(int64_t tile, const std::vector<TileIs>& before);
  void CheckBalance(int64_t tile, const std::vector<int8_t>& balance,
                    const std::vector<float>& rows, int n, const std::vector<TileIs>& before) const;

  kvarn_plane_config config_;
  std::shared_ptr<kvarn_plane> plane_;
  Block memory_;
  int64_t n_tiles_;
  std::vector<HalfRow> held_;     // what a read gives
  std::vector<HalfRow> written_;  // what was written last; empty: never
  std::vector<bool> fresh_;       // written since the row's tile was last opened
  std::vector<TileModel> tiles_;
  std::vector<int64_t> run_;  // rows of the current run of consecutive rows
  bool queries_used_ = false;
  uint64_t writes_ = 0, seals_ = 0, reopens_ = 0, zeroed_ = 0;
};

}  // namespace kvarn_test
#endif  // KVARN_TESTS_PROPERTY_PLANE_MODEL_H_
