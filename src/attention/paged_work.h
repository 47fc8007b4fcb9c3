// SPDX-License-Identifier: Apache-2.0
//
// Attention of one step over the sequences of a paged cache (kvarn_paged_step).
#ifndef KVARN_ATTENTION_PAGED_WORK_H_
#define KVARN_ATTENTION_PAGED_WORK_H_

#include "attention/plan.h"

namespace kvarn {

class PagedWork final : public AttentionWork {
 public:
  explicit PagedWork(const kvarn_paged_step& step);  // checked; must outlive this
  // Fills `first`, [n_sequences + 1]: number of the first block of each sequence. Blocks of a
  // sequence: KV head by KV head, the last query tokens (the most work) first.
  void ListBlocks(int32_t* first) const;
  // What ListBlocks made; needed by Block().
  void SetBlocks(const int32_t* first) { first_block_ = first; }
  AttentionTask Block(int block) const override;
  // In 64 bits, for the check.
  int64_t CountBlocks(int64_t* largest_rows) const;

 private:
  int64_t RowsOf(int sequence) const;

  const kvarn_paged_step& step_;
  const int32_t* first_block_ = nullptr;
};

}  // namespace kvarn
#endif  // KVARN_ATTENTION_PAGED_WORK_H_
