// SPDX-License-Identifier: Apache-2.0
#include "paged/seal.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "codec/balance.h"
#include "codec/record.h"
#include "format/dtype.h"
#include "format/record_layout.h"
#include "paged/query_sums.h"
#include "paged/rows.h"

namespace kvarn {
namespace {

// Tiles of a sequence that this step completes: [first, end).
struct Completed {
  int sequence;
  int first;
  int end;
};

std::vector<Completed> FindCompleted(const kvarn_paged_step& step) {
  const int group = step.key_format.group;
  std::vector<Completed> found;
  for (int i = 0; i < step.n_sequences; ++i) {
    if (StepTokens(step, i) == 0) continue;
    const Completed tiles = {i, ComputedRows(step, i) / group, step.lengths[i] / group};
    if (tiles.first < tiles.end) found.push_back(tiles);
  }
  return found;
}

// Seals the tiles of one KV head and role.
class HeadSealer {
 public:
  HeadSealer(const kvarn_paged_step& step, kvarn_role role, int head, kvarn_counts* counts)
      : step_(step),
        role_(role),
        head_(head),
        counts_(counts),
        format_(role == KVARN_KEY ? step.key_format : step.value_format),
        layout_(MakeRecordLayout(format_)),
        rows_(static_cast<size_t>(format_.group) * static_cast<size_t>(format_.head_dim)) {}

  // Sequences whose first tile follows one that another sequence completes in this step come after
  // that one, because they take its balance.
  kvarn_status Seal(std::vector<Completed> waiting);

 private:
  bool FollowsOneOf(const Completed& tiles, const std::vector<Completed>& others) const;
  kvarn_status SealTiles(const Completed& tiles);
  void LoadRows(int sequence, int tile);
  void FirstBalance(int sequence, int8_t* balance) const;

  const kvarn_paged_step& step_;
  kvarn_role role_;
  int head_;
  kvarn_counts* counts_;
  kvarn_format format_;
  RecordLayout layout_;
  std::vector<float> rows_;  // [G][D]
};

bool HeadSealer::FollowsOneOf(const Completed& tiles, const std::vector<Completed>& others) const {
  if (tiles.first == 0 || !layout_.has_balance) return false;
  const auto block = [&](int sequence, int tile) {
    return step_.block_table[sequence * step_.block_table_stride + tile];
  };
  const int32_t before = block(tiles.sequence, tiles.first - 1);
  return std::any_of(others.begin(), others.end(), [&](const Completed& other) {
    if (other.sequence == tiles.sequence) return false;
    for (int tile = other.first; tile < other.end; ++tile) {
      if (block(other.sequence, tile) == before) return true;
    }
    return false;
  });
}

kvarn_status HeadSealer::Seal(std::vector<Completed> waiting) {
  while (!waiting.empty()) {
    const auto ready = std::find_if(waiting.begin(), waiting.end(), [&](const Completed& tiles) {
      return !FollowsOneOf(tiles, waiting);
    });
    // Tables in which blocks follow each other in a circle make no sense; take them as they come.
    const auto next = ready == waiting.end() ? waiting.begin() : ready;
    const kvarn_status status = SealTiles(*next);
    if (status != KVARN_OK) return status;
    waiting.erase(next);
  }
  return KVARN_OK;
}

void HeadSealer::LoadRows(int sequence, int tile) {
  const int dim = format_.head_dim;
  for (int g = 0; g < format_.group; ++g) {
    float* row = rows_.data() + static_cast<ptrdiff_t>(g) * dim;
    RowToFloat(step_.dtype, ExactRow(step_, sequence, role_, head_, tile * format_.group + g), row,
               dim);
  }
}

// From the rows of tile 0, which are loaded, and the queries of its tokens.
void HeadSealer::FirstBalance(int sequence, int8_t* balance) const {
  const int dim = format_.head_dim;
  float query_ms[kMaxHeadDim];
  QuerySums sums(step_, sequence, head_, query_ms);
  while (sums.Next()) {
  }
  for (int d = 0; d < dim; ++d) query_ms[d] /= static_cast<float>(format_.group);
  std::vector<float> clean(rows_);
  for (int g = 0; g < format_.group; ++g) {
    float* row = clean.data() + static_cast<ptrdiff_t>(g) * dim;
    SanitiseRow(row, dim, row, nullptr);
  }
  ComputeBalance(dim, clean.data(), dim, format_.group, query_ms, balance);
}

kvarn_status HeadSealer::SealTiles(const Completed& tiles) {
  int8_t balance[kMaxHeadDim] = {};
  const auto dim = static_cast<size_t>(format_.head_dim);
  for (int tile = tiles.first; tile < tiles.end; ++tile) {
    LoadRows(tiles.sequence, tile);
    if (layout_.has_balance && tile == 0) FirstBalance(tiles.sequence, balance);
    if (layout_.has_balance && tile > 0 && tile == tiles.first) {
      const uint8_t* before = RecordOf(step_, tiles.sequence, role_, head_, tile - 1);
      std::memcpy(balance, before + layout_.balance, dim);
    }
    const kvarn_status status =
        EncodeRecord(format_, rows_.data(), format_.head_dim, format_.group, nullptr,
                     layout_.has_balance ? balance : nullptr,
                     RecordOf(step_, tiles.sequence, role_, head_, tile), counts_);
    if (status != KVARN_OK) return status;
  }
  return KVARN_OK;
}

}  // namespace

kvarn_status SealPaged(const kvarn_paged_step& step, int thread, int n_threads,
                       kvarn_counts* counts) {
  try {
    const std::vector<Completed> completed = FindCompleted(step);
    if (completed.empty()) return KVARN_OK;
    for (int task = thread; task < 2 * step.n_kv_heads; task += n_threads) {
      const kvarn_role role = task % 2 == 0 ? KVARN_KEY : KVARN_VALUE;
      const kvarn_status status = HeadSealer(step, role, task / 2, counts).Seal(completed);
      if (status != KVARN_OK) return status;
    }
  } catch (const std::bad_alloc&) {
    return KVARN_ERROR_MEMORY;
  }
  return KVARN_OK;
}

}  // namespace kvarn
