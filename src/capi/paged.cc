// SPDX-License-Identifier: Apache-2.0
//
// The C ABI of paged caches: checks arguments, then calls the C++ core.
#include "attention/paged_work.h"
#include "kvarn/kvarn_paged.h"
#include "paged/rows.h"
#include "paged/seal.h"

namespace {

// The numbers of the sequences' first blocks lie behind everything else.
int32_t* FirstBlocks(const kvarn::AttentionPlan& plan, void* workspace) {
  return reinterpret_cast<int32_t*>(static_cast<uint8_t*>(workspace) + plan.bytes);
}

}  // namespace

size_t kvarn_paged_ring_row_bytes(const kvarn_paged_step* step) {
  if (step == nullptr || !kvarn::IsLegal(step->key_format) || !kvarn::IsLegal(step->value_format) ||
      step->n_kv_heads < 1 || step->dtype < KVARN_FP16 || step->dtype > KVARN_FP32) {
    return 0;
  }
  return kvarn::RingRowBytes(*step);
}

kvarn_status kvarn_paged_check(const kvarn_paged_step* step) {
  return step == nullptr ? KVARN_ERROR_ARGUMENT : kvarn::CheckPaged(*step);
}

kvarn_status kvarn_paged_seal(const kvarn_paged_step* step, int32_t thread, int32_t n_threads,
                              kvarn_counts* counts) {
  if (step == nullptr || thread < 0 || n_threads < 1) return KVARN_ERROR_ARGUMENT;
  return kvarn::SealPaged(*step, thread, n_threads, counts);
}

size_t kvarn_paged_attention_workspace_bytes(const kvarn_paged_step* step, int32_t n_threads) {
  if (n_threads < 1 || kvarn_paged_check(step) != KVARN_OK) return 0;
  const size_t blocks = sizeof(int32_t) * (static_cast<size_t>(step->n_sequences) + 1);
  return kvarn::PlanAttention(kvarn::PagedWork(*step), n_threads).bytes + blocks;
}

kvarn_status kvarn_paged_attention_begin(const kvarn_paged_step* step, void* workspace,
                                         int32_t n_threads) {
  if (workspace == nullptr || n_threads < 1) return KVARN_ERROR_ARGUMENT;
  const kvarn_status status = kvarn_paged_check(step);
  if (status != KVARN_OK) return status;
  const kvarn::PagedWork work(*step);
  work.ListBlocks(FirstBlocks(kvarn::PlanAttention(work, n_threads), workspace));
  return kvarn::BeginAttention(work, workspace, n_threads);
}

void kvarn_paged_attention_run(const kvarn_paged_step* step, void* workspace, int32_t thread,
                               int32_t n_threads) {
  kvarn::PagedWork work(*step);
  work.SetBlocks(FirstBlocks(kvarn::PlanAttention(work, n_threads), workspace));
  kvarn::RunAttention(work, workspace, thread, n_threads);
}

void kvarn_paged_store(const kvarn_paged_step* step, int32_t thread, int32_t n_threads) {
  kvarn::StorePaged(*step, thread, n_threads);
}
