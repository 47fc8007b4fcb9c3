// SPDX-License-Identifier: Apache-2.0
//
// Host side of taking a step's rows into the cache: checks, workspace, launches.
#include <cuda_runtime_api.h>

#include "cuda/cache/append_params.h"
#include "cuda/common/check.h"
#include "cuda/common/small_matrix.h"
#include "cuda/encode/encode.h"

namespace kvarn::cuda {
namespace {

constexpr int kMaxHeadsPerKv = 16;
constexpr size_t kAlign = 256;

constexpr size_t AlignUp(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

struct Workspace {
  size_t seals, key_tiles, value_tiles, balances, bytes;
};

Workspace MakeWorkspace(const AppendParams& p) {
  const auto seals = static_cast<size_t>(p.max_seals);
  const size_t jobs = seals * static_cast<size_t>(p.call.n_kv_heads);
  Workspace w = {};
  w.seals = 0;
  w.key_tiles = AlignUp(sizeof(int2) * seals);
  w.value_tiles = w.key_tiles + AlignUp(sizeof(kvarn_cuda_tile) * jobs);
  w.balances = w.value_tiles + AlignUp(sizeof(kvarn_cuda_tile) * jobs);
  w.bytes = w.balances + AlignUp(static_cast<size_t>(p.balance_stride) * jobs);
  return w;
}

kvarn_status CheckShape(const kvarn_cuda_append& c) {
  if (!IsCudaRecord(c.key_format, KVARN_KEY) || !IsCudaRecord(c.value_format, KVARN_VALUE) ||
      c.key_format.group != c.value_format.group) {
    return KVARN_ERROR_FORMAT;
  }
  const int group = c.key_format.group;
  if ((c.dtype != KVARN_FP16 && c.dtype != KVARN_BF16) || c.n_sequences < 0 || c.n_rows < 0 ||
      c.n_kv_heads < 1 || c.n_heads < c.n_kv_heads || c.n_heads % c.n_kv_heads != 0 ||
      c.block_table_stride < 0 || c.tail_rows < 0 || c.balance_tile < 0 ||
      c.ring_rows % group != 0 || int64_t{c.ring_rows} < int64_t{c.tail_rows} + 2 * group) {
    return KVARN_ERROR_ARGUMENT;
  }
  if (c.n_heads / c.n_kv_heads > kMaxHeadsPerKv || c.key_format.head_dim > kMaxCudaHeadDim ||
      c.value_format.head_dim > kMaxCudaHeadDim) {
    return KVARN_ERROR_UNSUPPORTED;
  }
  return KVARN_OK;
}

kvarn_status CheckPointers(const kvarn_cuda_append& c) {
  const bool present = c.row_begin != nullptr && c.lengths != nullptr && c.new_keys != nullptr &&
                       c.new_values != nullptr && c.key_records != nullptr &&
                       c.value_records != nullptr && c.block_table != nullptr &&
                       c.exact_keys != nullptr && c.exact_values != nullptr &&
                       c.ring_base != nullptr && (c.query == nullptr) == (c.query_rms == nullptr);
  const int64_t strides = c.new_key_row_stride | c.new_key_head_stride | c.new_value_row_stride |
                          c.new_value_head_stride | c.key_block_stride | c.key_head_stride |
                          c.value_block_stride | c.value_head_stride | c.exact_key_row_stride |
                          c.exact_key_head_stride | c.exact_value_row_stride |
                          c.exact_value_head_stride;
  const int64_t query_strides = c.query_row_stride | c.query_head_stride | c.query_rms_row_stride;
  const bool aligned = strides % 16 == 0 && query_strides % 2 == 0 && Aligned(c.new_keys, 16) &&
                       Aligned(c.new_values, 16) && Aligned(c.key_records, 16) &&
                       Aligned(c.value_records, 16) && Aligned(c.exact_keys, 16) &&
                       Aligned(c.exact_values, 16) && Aligned(c.query, 2) &&
                       Aligned(c.query_rms, 2);
  const bool chunks = c.ring_base_stride >= c.ring_rows / c.key_format.group;
  return present && aligned && chunks ? KVARN_OK : KVARN_ERROR_ARGUMENT;
}

AppendParams MakeParams(const kvarn_cuda_append& call, void* workspace) {
  AppendParams p = {};
  p.call = call;
  p.key = MakeRecordLayout(call.key_format);
  p.group = call.key_format.group;
  p.heads_per_kv = call.n_heads / call.n_kv_heads;
  // A sequence with n new rows crosses at most n / group + 1 ends of tiles.
  p.max_seals = call.n_rows / p.group + call.n_sequences;
  p.balance_stride = (call.key_format.head_dim + 15) / 16 * 16;
  if (workspace == nullptr) return p;
  const Workspace w = MakeWorkspace(p);
  auto* base = static_cast<unsigned char*>(workspace);
  p.seals = reinterpret_cast<int2*>(base + w.seals);
  p.key_tiles = reinterpret_cast<kvarn_cuda_tile*>(base + w.key_tiles);
  p.value_tiles = reinterpret_cast<kvarn_cuda_tile*>(base + w.value_tiles);
  p.balances = reinterpret_cast<int8_t*>(base + w.balances);
  return p;
}

kvarn_status Check(const kvarn_cuda_append* call, const void* workspace) {
  if (call == nullptr || workspace == nullptr || !Aligned(workspace, kAlign)) {
    return KVARN_ERROR_ARGUMENT;
  }
  const kvarn_status status = CheckShape(*call);
  return status == KVARN_OK ? CheckPointers(*call) : status;
}

kvarn_status Launched() {
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}

}  // namespace
}  // namespace kvarn::cuda

using kvarn::cuda::AppendParams;

size_t kvarn_cuda_append_workspace_bytes(const kvarn_cuda_append* call) {
  if (call == nullptr || kvarn::cuda::CheckShape(*call) != KVARN_OK) return 0;
  // More than the arrays: a legal call without rows must not answer 0.
  return kvarn::cuda::MakeWorkspace(kvarn::cuda::MakeParams(*call, nullptr)).bytes +
         kvarn::cuda::kAlign;
}

kvarn_status kvarn_cuda_append_plan(const kvarn_cuda_append* call, void* workspace, void* stream) {
  const kvarn_status status = kvarn::cuda::Check(call, workspace);
  if (status != KVARN_OK || call->n_sequences == 0) return status;
  kvarn::cuda::LaunchAppendPlan(kvarn::cuda::MakeParams(*call, workspace), stream);
  return kvarn::cuda::Launched();
}

kvarn_status kvarn_cuda_append_run(const kvarn_cuda_append* call, void* workspace, void* stream) {
  kvarn_status status = kvarn::cuda::Check(call, workspace);
  if (status != KVARN_OK || call->n_sequences == 0 || call->n_rows == 0) return status;
  const AppendParams p = kvarn::cuda::MakeParams(*call, workspace);
  const int jobs = p.max_seals * call->n_kv_heads;
  kvarn::cuda::LaunchSealJobs(p, stream);
  status =
      kvarn::cuda::Encode(call->key_format, call->dtype, p.key_tiles, jobs, call->counts, stream);
  if (status != KVARN_OK) return status;
  status = kvarn::cuda::Encode(call->value_format, call->dtype, p.value_tiles, jobs, call->counts,
                               stream);
  if (status != KVARN_OK) return status;
  // Last: sealed tiles are read from ring rows that new ones may take the place of.
  kvarn::cuda::LaunchWriteRows(p, stream);
  return kvarn::cuda::Launched();
}
