// SPDX-License-Identifier: Apache-2.0
//
// Host side of prefill attention: checks and launch.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>

#include "codec/rotation.h"
#include "cuda/attention/check_call.h"
#include "cuda/common/check.h"
#include "cuda/common/small_matrix.h"
#include "cuda/prefill/launch.h"
#include "cuda/prefill/shape.h"

namespace kvarn::cuda {
namespace {

constexpr int kLeastMajor = 8;    // compute capability: cp.async and bf16 products
constexpr int kAheadMajor = 9;    // wgmma
constexpr int kFewestRows = 128;  // query rows of a CTA, of any kernel
// A block of 192 rows that decodes ahead takes a third longer than one of 128: it pays from this
// many query rows of a KV head on, on average over the sequences.
constexpr int64_t kAheadRows = 400;

int64_t TotalTokens(const kvarn_cuda_prefill& c) {
  return HasTileTable(c.attention) ? int64_t{c.attention.n_sequences} * c.attention.n_tokens
                                   : c.total_tokens;
}

// Blocks of so many query rows that the longest sequence may have.
int64_t BlocksOfSequence(const kvarn_cuda_prefill& c, int rows) {
  const int64_t heads = c.attention.n_heads / c.attention.n_kv_heads;
  return (c.attention.n_tokens * heads + rows - 1) / rows;
}
// Of all: without a tile table at most one more than fit for each sequence.
int64_t BlockCount(const kvarn_cuda_prefill& c, int rows) {
  const int64_t n_sequences = c.attention.n_sequences;
  const int64_t heads = c.attention.n_heads / c.attention.n_kv_heads;
  const int64_t most = n_sequences * BlocksOfSequence(c, rows);
  if (HasTileTable(c.attention)) return most;
  return std::min(most, c.total_tokens * heads / rows + n_sequences);
}

// Where e lies in a K record, and the bytes of both.
void SetRecords(PrefillParams* p) {
  const RecordLayout key = MakeRecordLayout(p->call.attention.key_format);
  const RecordLayout value = MakeRecordLayout(p->call.attention.value_format);
  p->key_bytes = static_cast<int32_t>(key.bytes);
  p->value_bytes = static_cast<int32_t>(value.bytes);
  p->key_balance_at = static_cast<int32_t>(key.balance);
}

void SetOptions(PrefillParams* p) {
  constexpr float kLog2E = 1.44269504088896341F;
  const kvarn_cuda_decode& c = p->call.attention;
  p->cap = c.softcap * kLog2E;
  p->to_cap = p->cap != 0.0F ? 1.0F / p->cap : 0.0F;
  p->bias_heads = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(c.n_heads)));
  p->bias_step = -c.max_bias / static_cast<float>(p->bias_heads);
  p->general = c.softcap != 0.0F || c.max_bias > 0.0F || c.mask != nullptr;
  p->listed = HasTileTable(c);
  p->aligned_mask =
      p->listed && Aligned(c.mask, 16) && (c.mask_sequence_stride | c.mask_token_stride) % 16 == 0;
  p->general_plain = p->listed ? c.softcap != 0.0F : p->general;
  p->n_tile_words = p->listed ? (c.tile_table_stride - 1) / 32 + 1 : 0;
}

kvarn_status SetRotations(PrefillParams* p) {
  const Rotation* key = FindRotation(p->call.attention.key_format.head_dim);
  const Rotation* value = FindRotation(p->call.attention.value_format.head_dim);
  if (key == nullptr || value == nullptr) return KVARN_ERROR_MEMORY;
  p->key_rotation_scale = key->scale;
  p->value_rotation_scale = value->scale;
  bool key_ok = false;
  bool value_ok = false;
  p->key_small = SmallMatrix(*key, &key_ok);
  p->value_small = SmallMatrix(*value, &value_ok);
  return key_ok && value_ok ? KVARN_OK : KVARN_ERROR_MEMORY;
}

// The kernel of an instance that the current device runs, or null.
const PrefillVariant* ChooseVariant(const PrefillInstance& instance, const PrefillParams& params) {
  int device = 0;
  int major = 0;
  int limit = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess) {
    return nullptr;
  }
  const auto runs = [&](const PrefillVariant& variant, int least_major) {
    return variant.launch != nullptr && major >= least_major &&
           variant.SharedBytes(params) <= limit;
  };
  const bool many = TotalTokens(params.call) * params.heads_per_kv >=
                    kAheadRows * params.call.attention.n_sequences;
  if (many && major == kAheadMajor && runs(instance.ahead, kAheadMajor)) return &instance.ahead;
  return runs(instance.plain, kLeastMajor) ? &instance.plain : nullptr;
}

kvarn_status CheckShape(const kvarn_cuda_prefill& c) {
  const kvarn_status status = CheckCall(c.attention);
  if (status != KVARN_OK) return status;
  const int64_t most = int64_t{c.attention.n_sequences} * c.attention.n_tokens;
  const bool legal = HasTileTable(c.attention)
                         ? c.attention.mask != nullptr && c.seal_lag == -1
                         : c.total_tokens >= 0 && c.total_tokens <= most && c.seal_lag >= -1;
  return legal && BlockCount(c, kFewestRows) * c.attention.n_kv_heads <= INT32_MAX
             ? KVARN_OK
             : KVARN_ERROR_ARGUMENT;
}

kvarn_status CheckPointers(const kvarn_cuda_prefill& c) {
  if (HasTileTable(c.attention)) return CheckCallPointers(c.attention);
  kvarn_cuda_decode shared = c.attention;
  shared.query_sequence_stride = shared.out_sequence_stride = 0;  // not read
  const int64_t strides = c.chunk_key_row_stride | c.chunk_key_head_stride |
                          c.chunk_value_row_stride | c.chunk_value_head_stride;
  const bool ok = c.query_begin != nullptr && c.chunk_keys != nullptr &&
                  c.chunk_values != nullptr && strides % 16 == 0 && Aligned(c.chunk_keys, 16) &&
                  Aligned(c.chunk_values, 16);
  return ok ? CheckCallPointers(shared) : KVARN_ERROR_ARGUMENT;
}

// A call that passed CheckShape.
kvarn_status Prepare(const kvarn_cuda_prefill& call, const PrefillVariant** variant,
                     PrefillParams* p) {
  *p = {};
  p->call = call;
  p->heads_per_kv = call.attention.n_heads / call.attention.n_kv_heads;
  SetOptions(p);
  SetRecords(p);
  const PrefillInstance* instance = FindPrefillInstance(call);
  *variant = instance == nullptr ? nullptr : ChooseVariant(*instance, *p);
  if (*variant == nullptr) return KVARN_ERROR_UNSUPPORTED;
  p->n_blocks = static_cast<int32_t>(BlockCount(call, (*variant)->rows));
  p->blocks_per_sequence = static_cast<int32_t>(BlocksOfSequence(call, (*variant)->rows));
  p->tiles_at = (*variant)->TilesAt(*p);
  return SetRotations(p);
}

}  // namespace
}  // namespace kvarn::cuda

using kvarn::cuda::PrefillParams;
using kvarn::cuda::PrefillVariant;

kvarn_status kvarn_cuda_prefill_check(const kvarn_cuda_prefill* call) {
  if (call == nullptr) return KVARN_ERROR_ARGUMENT;
  const kvarn_status status = kvarn::cuda::CheckShape(*call);
  if (status != KVARN_OK) return status;
  const PrefillVariant* variant = nullptr;
  PrefillParams params;
  return kvarn::cuda::Prepare(*call, &variant, &params);
}

kvarn_status kvarn_cuda_prefill_run(const kvarn_cuda_prefill* call, void* stream) {
  if (call == nullptr) return KVARN_ERROR_ARGUMENT;
  kvarn_status status = kvarn::cuda::CheckShape(*call);
  if (status != KVARN_OK) return status;
  if (kvarn::cuda::TotalTokens(*call) == 0) return KVARN_OK;
  status = kvarn::cuda::CheckPointers(*call);
  if (status != KVARN_OK) return status;
  const PrefillVariant* variant = nullptr;
  PrefillParams params;
  status = kvarn::cuda::Prepare(*call, &variant, &params);
  if (status != KVARN_OK) return status;
  const auto shared_bytes = static_cast<int>(variant->SharedBytes(params));
  return variant->launch(params, shared_bytes, stream) == cudaSuccess ? KVARN_OK
                                                                      : KVARN_ERROR_UNSUPPORTED;
}
