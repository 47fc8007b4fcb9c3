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

namespace kvarn {
namespace {

using Counter = std::atomic<int32_t>;

const RecentHeader* Recent(const void* first, size_t offset) {
  if (first == nullptr) return nullptr;
  return reinterpret_cast<const RecentHeader*>(static_cast<const uint8_t*>(first) + offset);
}

class AttentionRun {
 public:
  AttentionRun(const kvarn_attention& call, void* workspace, int n_threads)
      : call_(call),
        plan_(PlanAttention(call, n_threads)),
        workspace_(static_cast<uint8_t*>(workspace)),
        value_dim_(call.value_plane->config.format.head_dim),
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

  const kvarn_attention& call_;
  AttentionPlan plan_;
  uint8_t* workspace_;
  int value_dim_;
  int value_stride_;
};

AttentionPartial AttentionRun::Partial(int index) const {
  auto* base = reinterpret_cast<float*>(workspace_ + plan_.partials +
                                        static_cast<size_t>(index) * plan_.partial_bytes);
  const int rows = plan_.rows_per_head < kQueryBlock ? plan_.rows_per_head : kQueryBlock;
  AttentionPartial partial = {};
  partial.max = base;
  partial.sum = base + kQueryBlock;
  partial.rotated = base + 2 * kQueryBlock;
  partial.plain = partial.rotated + static_cast<ptrdiff_t>(rows) * value_stride_;
  return partial;
}

AttentionTask AttentionRun::TaskOf(int block, int split) const {
  const int head_index = block / plan_.blocks_per_head;
  const int in_head = block % plan_.blocks_per_head;
  AttentionTask task = {};
  task.call = &call_;
  task.stream = head_index / call_.n_kv_heads;
  task.kv_head = head_index % call_.n_kv_heads;
  const auto stream = static_cast<size_t>(task.stream);
  const auto head = static_cast<size_t>(task.kv_head);
  task.keys = static_cast<const uint8_t*>(call_.keys) + stream * call_.key_stream_stride +
              head * call_.key_head_stride;
  task.values = static_cast<const uint8_t*>(call_.values) + stream * call_.value_stream_stride +
                head * call_.value_head_stride;
  task.key_recent = Recent(call_.key_recent, stream * call_.key_recent_stream_stride +
                                                 head * call_.key_recent_head_stride);
  task.value_recent = Recent(call_.value_recent, stream * call_.value_recent_stream_stride +
                                                     head * call_.value_recent_head_stride);
  task.key_rotation = FindRotation(call_.key_plane->config.format.head_dim);
  task.first_row = in_head * kQueryBlock;
  const int left = plan_.rows_per_head - task.first_row;
  task.n_rows = left < kQueryBlock ? left : kQueryBlock;
  task.first_tile = plan_.n_tiles * split / plan_.n_splits;
  task.end_tile = plan_.n_tiles * (split + 1) / plan_.n_splits;
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
  const Rotation* rotation = FindRotation(value_dim_);
  ActiveKernels().rotate(*rotation, partial.rotated, task.n_rows, value_stride_, true);
  const int heads_per_kv = call_.n_heads / call_.n_kv_heads;
  for (int r = 0; r < task.n_rows; ++r) {
    const int flat = task.first_row + r;
    const int token = flat / heads_per_kv;
    const int head = task.kv_head * heads_per_kv + flat % heads_per_kv;
    float sum = partial.sum[r];
    float gain = sum > 0.0F ? 1.0F / sum : 0.0F;
    if (call_.sinks != nullptr && sum > 0.0F) {
      const float top = partial.max[r] > call_.sinks[head] ? partial.max[r] : call_.sinks[head];
      const float keep = std::exp(partial.max[r] - top);
      sum = sum * keep + std::exp(call_.sinks[head] - top);
      gain = keep / sum;
    }
    auto* out =
        reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(call_.out) +
                                 static_cast<size_t>(task.stream) * call_.out_stream_stride +
                                 static_cast<size_t>(token) * call_.out_token_stride +
                                 static_cast<size_t>(head) * call_.out_head_stride);
    const ptrdiff_t at = static_cast<ptrdiff_t>(r) * value_stride_;
    for (int d = 0; d < value_dim_; ++d) {
      out[d] = (partial.rotated[at + d] + partial.plain[at + d]) * gain;
    }
  }
}

}  // namespace

kvarn_status BeginAttention(const kvarn_attention& call, void* workspace, int n_threads) {
  if (FindRotation(call.key_plane->config.format.head_dim) == nullptr ||
      FindRotation(call.value_plane->config.format.head_dim) == nullptr) {
    return KVARN_ERROR_MEMORY;
  }
  AttentionRun(call, workspace, n_threads).Begin();
  return KVARN_OK;
}

void RunAttention(const kvarn_attention& call, void* workspace, int thread, int n_threads) {
  AttentionRun(call, workspace, n_threads).Run(thread);
}

}  // namespace kvarn
