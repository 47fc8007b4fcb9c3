// SPDX-License-Identifier: Apache-2.0
//
// Runs the tasks of a call: threads take them from one counter; whoever finishes the last split of
// a block merges it. Nobody waits.
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>

#include "attention/plan.h"
#include "codec/rotation.h"
#include "cpu/kernels.h"
#include "format/dtype.h"

namespace kvarn {
namespace {

using Counter = std::atomic<int32_t>;

class AttentionRun {
 public:
  AttentionRun(const AttentionWork& work, void* workspace, int n_threads)
      : work_(work),
        plan_(PlanAttention(work, n_threads)),
        workspace_(static_cast<uint8_t*>(workspace)),
        value_dim_(work.shape.value.head_dim),
        value_stride_(RowStride(value_dim_)) {}

  void Begin();
  void Run(int thread);

 private:
  Counter& Next() { return *reinterpret_cast<Counter*>(workspace_); }
  Counter& Done(int block) { return reinterpret_cast<Counter*>(workspace_ + plan_.done)[block]; }
  AttentionPartial Partial(int index) const;
  AttentionTask TaskOf(int block, int split) const;
  void Merge(const AttentionTask& task, int first_partial);
  void Store(const AttentionTask& task, const AttentionPartial& partial);

  const AttentionWork& work_;
  AttentionPlan plan_;
  uint8_t* workspace_;
  int value_dim_;
  int value_stride_;
};

AttentionPartial AttentionRun::Partial(int index) const {
  auto* base = reinterpret_cast<float*>(workspace_ + plan_.partials +
                                        static_cast<size_t>(index) * plan_.partial_bytes);
  AttentionPartial partial = {};
  partial.max = base;
  partial.sum = base + kQueryBlock;
  partial.rotated = base + 2 * kQueryBlock;
  partial.plain = partial.rotated + static_cast<ptrdiff_t>(plan_.block_rows) * value_stride_;
  return partial;
}

AttentionTask AttentionRun::TaskOf(int block, int split) const {
  AttentionTask task = work_.Block(block);
  task.first_tile = task.n_tiles * split / plan_.n_splits;
  task.end_tile = task.n_tiles * (split + 1) / plan_.n_splits;
  return task;
}

void AttentionRun::Begin() {
  new (&Next()) Counter(0);
  for (int block = 0; block < plan_.n_blocks; ++block) new (&Done(block)) Counter(0);
}

void AttentionRun::Run(int thread) {
  const Kernels& kernels = ActiveKernels();
  const int n_tasks = plan_.n_blocks * plan_.n_splits;
  for (;;) {
    const int index = Next().fetch_add(1, std::memory_order_relaxed);
    if (index >= n_tasks) return;
    const int block = index / plan_.n_splits;
    AttentionTask task = TaskOf(block, index % plan_.n_splits);
    task.scratch =
        workspace_ + plan_.scratch + static_cast<size_t>(thread) * plan_.per_thread.bytes;
    task.partial = Partial(plan_.n_splits == 1 ? thread : index);
    kernels.attend(task);
    if (plan_.n_splits == 1) {
      Store(task, task.partial);
    } else if (Done(block).fetch_add(1, std::memory_order_acq_rel) == plan_.n_splits - 1) {
      Merge(task, block * plan_.n_splits);
    }
  }
}

// Adds the splits up into the first, in the order of the tiles.
void AttentionRun::Merge(const AttentionTask& task, int first_partial) {
  const AttentionPartial into = Partial(first_partial);
  for (int split = 1; split < plan_.n_splits; ++split) {
    const AttentionPartial from = Partial(first_partial + split);
    for (int r = 0; r < task.n_rows; ++r) {
      if (!(from.sum[r] > 0.0F)) continue;
      const float top = into.max[r] > from.max[r] ? into.max[r] : from.max[r];
      const float keep = into.sum[r] > 0.0F ? std::exp(into.max[r] - top) : 0.0F;
      const float add = std::exp(from.max[r] - top);
      into.max[r] = top;
      into.sum[r] = into.sum[r] * keep + from.sum[r] * add;
      const ptrdiff_t at = static_cast<ptrdiff_t>(r) * value_stride_;
      for (int d = 0; d < value_dim_; ++d) {
        into.rotated[at + d] = into.rotated[at + d] * keep + from.rotated[at + d] * add;
        into.plain[at + d] = into.plain[at + d] * keep + from.plain[at + d] * add;
      }
    }
  }
  Store(task, into);
}

void AttentionRun::Store(const AttentionTask& task, const AttentionPartial& partial) {
  const AttentionShape& shape = work_.shape;
  ActiveKernels().rotate(*shape.value_rotation, partial.rotated, task.n_rows, value_stride_, true);
  for (int r = 0; r < task.n_rows; ++r) {
    const int flat = task.first_row + r;
    const int token = flat / shape.heads_per_kv;
    const int head = task.kv_head * shape.heads_per_kv + flat % shape.heads_per_kv;
    float sum = partial.sum[r];
    float gain = sum > 0.0F ? 1.0F / sum : 0.0F;
    if (shape.sinks != nullptr && sum > 0.0F) {
      const float top = partial.max[r] > shape.sinks[head] ? partial.max[r] : shape.sinks[head];
      const float keep = std::exp(partial.max[r] - top);
      sum = sum * keep + std::exp(shape.sinks[head] - top);
      gain = keep / sum;
    }
    float row[kMaxHeadDim];
    const ptrdiff_t at = static_cast<ptrdiff_t>(r) * value_stride_;
    for (int d = 0; d < value_dim_; ++d) {
      row[d] = (partial.rotated[at + d] + partial.plain[at + d]) * gain;
    }
    uint8_t* out = task.out + token * task.out_token_stride + head * task.out_head_stride;
    FloatToRow(shape.dtype, row, out, value_dim_);
  }
}

}  // namespace

kvarn_status BeginAttention(const AttentionWork& work, void* workspace, int n_threads) {
  if (work.shape.key_rotation == nullptr || work.shape.value_rotation == nullptr) {
    return KVARN_ERROR_MEMORY;
  }
  AttentionRun(work, workspace, n_threads).Begin();
  return KVARN_OK;
}

void RunAttention(const AttentionWork& work, void* workspace, int thread, int n_threads) {
  AttentionRun(work, workspace, n_threads).Run(thread);
}

}  // namespace kvarn
