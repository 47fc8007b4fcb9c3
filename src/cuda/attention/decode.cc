// SPDX-License-Identifier: Apache-2.0
//
// Host side of decode attention: checks, workspace, launches.
#include <cuda_runtime_api.h>

#include "codec/rotation.h"
#include "cuda/attention/check_call.h"
#include "cuda/attention/launch.h"
#include "cuda/attention/shape.h"
#include "cuda/common/check.h"
#include "cuda/common/small_matrix.h"

namespace kvarn::cuda {
namespace {

constexpr size_t kCostUnit = 64;  // bytes
constexpr int kClusterSpare =
    2;  // warps of a cluster for each tile, at least: some have to be idle

struct Workspace {
  size_t sequences, tiles, places, pieces, shares, segment_pieces, prefix, filled, partial_sums,
      partial_outs, bytes;
};

Workspace MakeWorkspace(const DecodeParams& p) {
  const auto segments = static_cast<size_t>(p.n_segments);
  const auto ctas = static_cast<size_t>(p.n_ctas);
  const size_t rows =
      (ctas + segments) * static_cast<size_t>(p.n_warps) * static_cast<size_t>(p.partial_rows);
  Workspace w = {};
  w.sequences = 0;
  w.tiles = AlignUp(sizeof(DecodeSequence) * static_cast<size_t>(p.call.n_sequences), 256);
  const size_t list =
      HasTileTable(p.call)
          ? sizeof(int32_t) * static_cast<size_t>(p.call.n_sequences * int64_t{p.blocks_stride})
          : 0;
  w.places = w.tiles + AlignUp(list, 256);
  w.pieces = w.places + AlignUp(list, 256);
  w.shares = w.pieces + AlignUp(sizeof(DecodePiece) * (ctas + segments), 256);
  w.segment_pieces = w.shares + AlignUp(sizeof(DecodeShare) * ctas, 256);
  w.prefix = w.segment_pieces + AlignUp(sizeof(int32_t) * (segments + 1), 256);
  w.filled = w.prefix + AlignUp(sizeof(int64_t) * (segments + 1), 256);
  w.partial_sums = w.filled + AlignUp(sizeof(int32_t) * (segments + 1), 256);
  w.partial_outs = w.partial_sums + AlignUp(sizeof(float2) * rows, 256);
  w.bytes = w.partial_outs +
            AlignUp(sizeof(float) * rows * static_cast<size_t>(p.call.value_format.head_dim), 256);
  return w;
}

int MultiprocessorCount() {
  int device = 0;
  int count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 0;
  }
  return count;
}

// On success `instance` is what serves the call.
kvarn_status CheckShape(const kvarn_cuda_decode& c, const DecodeInstance** instance) {
  const kvarn_status status = CheckCall(c);
  if (status != KVARN_OK) return status;
  *instance = FindDecodeInstance(c);
  return *instance == nullptr ? KVARN_ERROR_UNSUPPORTED : KVARN_OK;
}

// CTAs of a cluster, if each KV head of each sequence gets one and none has much to do: a plan for
// the whole GPU is more even, but costs a second kernel. Else 0.
int ClusterCtas(const DecodeInstance& instance, const DecodeParams& p) {
  if (instance.launch_clusters == nullptr) return 0;
  const int clusters = p.call.n_sequences * p.call.n_kv_heads;
  const int most_tiles =
      HasTileTable(p.call) ? p.call.tile_table_stride : p.call.block_table_stride;
  if (most_tiles == 0) return 0;  // a table without entries is not to be read
  for (int ctas = kMaxClusterCtas; ctas > 1; ctas /= 2) {
    if (clusters * ctas > p.n_ctas) continue;
    if (most_tiles > ctas * p.n_warps / kClusterSpare) return 0;
    if (instance.max_clusters(ctas) >= clusters) return ctas;
  }
  return 0;
}

// The call must have passed CheckShape; pointers into the workspace are set if it is given.
kvarn_status MakeParams(const kvarn_cuda_decode& call, const DecodeInstance& instance,
                        void* workspace, DecodeParams* p) {
  *p = {};
  p->call = call;
  p->heads_per_kv = call.n_heads / call.n_kv_heads;
  p->query_rows = p->heads_per_kv * call.n_tokens;
  p->n_warps = instance.n_warps;
  p->row_to_token = RowToToken(p->heads_per_kv);
  while (call.n_kv_heads % (2 << p->head_shift) == 0 && p->n_warps % (2 << p->head_shift) == 0) {
    p->head_shift += 1;
  }
  p->n_groups = call.n_kv_heads >> p->head_shift;
  p->n_segments = call.n_sequences * p->n_groups * kUnitKinds;
  p->n_ctas = MultiprocessorCount();
  if (p->n_ctas == 0) return KVARN_ERROR_UNSUPPORTED;
  p->cluster_ctas = ClusterCtas(instance, *p);
  while (2 << p->cluster_shift <= p->cluster_ctas) p->cluster_shift += 1;
  p->partial_rows = instance.column_tiles * kRowsPerColumnTile;
  p->record_cost = static_cast<int32_t>((instance.key_bytes + instance.value_bytes) / kCostUnit);
  const auto dims = static_cast<size_t>(call.key_format.head_dim + call.value_format.head_dim);
  p->exact_cost = static_cast<int32_t>(dims * 2 * kExactUnitRows / kCostUnit);
  p->segment_cost = p->record_cost / 2;
  p->blocks = call.block_table;
  p->blocks_stride = HasTileTable(call) ? 2 * call.tile_table_stride : call.block_table_stride;
  const Rotation* key = FindRotation(call.key_format.head_dim);
  const Rotation* value = FindRotation(call.value_format.head_dim);
  if (key == nullptr || value == nullptr) return KVARN_ERROR_MEMORY;
  p->key_rotation_scale = key->scale;
  p->value_rotation_scale = value->scale;
  p->value_small_dim = value->small_dim;
  bool key_ok = false;
  bool value_ok = false;
  p->key_small = SmallMatrix(*key, &key_ok);
  p->value_small = SmallMatrix(*value, &value_ok);
  if (!key_ok || !value_ok) return KVARN_ERROR_MEMORY;
  if (workspace == nullptr) return KVARN_OK;
  const Workspace w = MakeWorkspace(*p);
  auto* base = static_cast<unsigned char*>(workspace);
  p->sequences = reinterpret_cast<DecodeSequence*>(base + w.sequences);
  if (HasTileTable(call)) {
    p->listed_tiles = reinterpret_cast<int32_t*>(base + w.tiles);
    p->listed_places = reinterpret_cast<int32_t*>(base + w.places);
    p->blocks = p->listed_places;
  }
  p->pieces = reinterpret_cast<DecodePiece*>(base + w.pieces);
  p->shares = reinterpret_cast<DecodeShare*>(base + w.shares);
  p->segment_pieces = reinterpret_cast<int32_t*>(base + w.segment_pieces);
  p->prefix = reinterpret_cast<int64_t*>(base + w.prefix);
  p->filled = reinterpret_cast<int32_t*>(base + w.filled);
  p->partial_sums = reinterpret_cast<float2*>(base + w.partial_sums);
  p->partial_outs = reinterpret_cast<float*>(base + w.partial_outs);
  return KVARN_OK;
}

kvarn_status Prepare(const kvarn_cuda_decode* call, void* workspace,
                     const DecodeInstance** instance, DecodeParams* params) {
  if (call == nullptr || workspace == nullptr || !Aligned(workspace, 256)) {
    return KVARN_ERROR_ARGUMENT;
  }
  kvarn_status status = CheckShape(*call, instance);
  if (status == KVARN_OK) status = CheckCallPointers(*call);
  return status == KVARN_OK ? MakeParams(*call, **instance, workspace, params) : status;
}

}  // namespace
}  // namespace kvarn::cuda

using kvarn::cuda::DecodeInstance;
using kvarn::cuda::DecodeParams;

size_t kvarn_cuda_decode_workspace_bytes(const kvarn_cuda_decode* call) {
  const DecodeInstance* instance = nullptr;
  if (call == nullptr || kvarn::cuda::CheckShape(*call, &instance) != KVARN_OK) return 0;
  DecodeParams params;
  if (kvarn::cuda::MakeParams(*call, *instance, nullptr, &params) != KVARN_OK) return 0;
  return kvarn::cuda::MakeWorkspace(params).bytes;
}

kvarn_status kvarn_cuda_decode_check(const kvarn_cuda_decode* call) {
  const DecodeInstance* instance = nullptr;
  return call == nullptr ? KVARN_ERROR_ARGUMENT : kvarn::cuda::CheckShape(*call, &instance);
}

kvarn_status kvarn_cuda_decode_plan(const kvarn_cuda_decode* call, void* workspace, void* stream) {
  const DecodeInstance* instance = nullptr;
  DecodeParams params;
  const kvarn_status status = kvarn::cuda::Prepare(call, workspace, &instance, &params);
  if (status != KVARN_OK || call->n_sequences == 0) return status;
  kvarn::cuda::LaunchPlan(params, stream);
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}

kvarn_status kvarn_cuda_decode_run(const kvarn_cuda_decode* call, void* workspace, void* stream) {
  const DecodeInstance* instance = nullptr;
  DecodeParams params;
  const kvarn_status status = kvarn::cuda::Prepare(call, workspace, &instance, &params);
  if (status != KVARN_OK || call->n_sequences == 0) return status;
  cudaError_t error = cudaSuccess;
  if (params.cluster_ctas > 0) {
    error = instance->launch_clusters(params, stream);
  } else {
    error = instance->launch(params, stream);
    if (error == cudaSuccess) error = kvarn::cuda::LaunchCombine(params, stream);
  }
  return error == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}
