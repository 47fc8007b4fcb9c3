// SPDX-License-Identifier: Apache-2.0
//
// Attention over planes (kvarn_attention).
#ifndef KVARN_ATTENTION_PLANE_WORK_H_
#define KVARN_ATTENTION_PLANE_WORK_H_

#include "attention/plan.h"

namespace kvarn {

// KVARN_OK if the call may be run.
kvarn_status CheckAttention(const kvarn_attention& call);

class PlaneWork final : public AttentionWork {
 public:
  explicit PlaneWork(const kvarn_attention& call);  // checked; must outlive this
  AttentionTask Block(int block) const override;

 private:
  const kvarn_attention& call_;
  int blocks_per_head_;
};

}  // namespace kvarn
#endif  // KVARN_ATTENTION_PLANE_WORK_H_
