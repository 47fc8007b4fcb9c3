// SPDX-License-Identifier: Apache-2.0
//
// Running sums over the queries of the first tile of a sequence, from which its balance follows.
// The sum of each position is kept in the ring's history rows, so that a step may begin again at
// any position that a host takes back, and tokens are added one by one, so that the grouping of
// tokens into steps does not matter.
#ifndef KVARN_PAGED_QUERY_SUMS_H_
#define KVARN_PAGED_QUERY_SUMS_H_

#include "kvarn/kvarn_paged.h"

namespace kvarn {

// Whether tokens of the step belong to the first tile of a format that has a balance.
bool NeedsQuerySums(const kvarn_paged_step& step, int sequence);

// Walks over the positions of the first tile that this step writes.
class QuerySums {
 public:
  // Starts with the sums of the position before the step.
  QuerySums(const kvarn_paged_step& step, int sequence, int head, float* sums);
  // Adds the mean over query heads of q^2 of the next position. False when there is none left.
  bool Next();
  int Position() const { return position_; }  // that was added last

 private:
  const kvarn_paged_step& step_;
  int sequence_;
  int head_;
  int position_;
  float* sums_;  // [Dk]
};

}  // namespace kvarn
#endif  // KVARN_PAGED_QUERY_SUMS_H_
