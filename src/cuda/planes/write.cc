// SPDX-License-Identifier: Apache-2.0
//
// Host side of writing rows into planes on a device: checks and launch.
#include <cuda_runtime_api.h>

#include "cache/plane.h"
#include "codec/rotation.h"
#include "cuda/common/check.h"
#include "cuda/common/small_matrix.h"
#include "cuda/planes/params.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {
namespace {

constexpr int kMaxHeadsPerKv = 16;

kvarn_status Check(const kvarn_cuda_plane_write& c) {
  if (c.plane == nullptr || c.n_streams < 0 || c.n_kv_heads < 1 || c.n_rows < 0) {
    return KVARN_ERROR_ARGUMENT;
  }
  const kvarn_plane& plane = *c.plane;
  if (!IsCudaRecord(plane.config.format, plane.config.format.role)) return KVARN_ERROR_FORMAT;
  if (plane.HeadDim() > kMaxCudaHeadDim || plane.n_slots > kMaxPlaneSlots ||
      c.heads_per_kv > kMaxHeadsPerKv) {
    return KVARN_ERROR_UNSUPPORTED;
  }
  if (c.n_streams == 0 || c.n_rows == 0) return KVARN_OK;
  const int64_t strides = c.row_stride | c.head_stride | c.query_row_stride | c.query_head_stride;
  const bool legal = c.planes != nullptr && Aligned(c.planes, 64) && c.plane_stride % 64 == 0 &&
                     static_cast<size_t>(c.plane_stride) >= plane.bytes && c.rows != nullptr &&
                     c.x != nullptr && strides % 4 == 0 && Aligned(c.x, 4) && Aligned(c.query, 4) &&
                     (c.query == nullptr || c.heads_per_kv > 0);
  return legal ? KVARN_OK : KVARN_ERROR_ARGUMENT;
}

kvarn_status MakeParams(const kvarn_cuda_plane_write& c, PlaneWriteParams* p) {
  const kvarn_plane& plane = *c.plane;
  const Rotation* rotation = FindRotation(plane.HeadDim());
  if (rotation == nullptr) return KVARN_ERROR_MEMORY;
  *p = {};
  bool ok = false;
  p->encode.small = SmallMatrix(*rotation, &ok);
  if (!ok) return KVARN_ERROR_MEMORY;
  p->encode.small_dim = rotation->small_dim;
  p->encode.block = rotation->block;
  p->encode.rotation_scale = rotation->scale;
  p->encode.layout = plane.record;
  p->encode.head_dim = plane.HeadDim();
  p->encode.group = plane.Group();
  p->encode.bits = plane.config.format.bits;
  p->encode.bf16 = false;
  p->tiles_at = plane.tiles;
  p->slots_at = plane.slots;
  p->queries_at = plane.queries;
  p->exact_at = plane.exact;
  p->records_at = plane.records;
  p->n_rows = plane.config.n_rows;
  p->tail_rows = plane.config.tail_rows;
  p->sink_tiles = plane.config.sink_tiles;
  p->n_slots = plane.n_slots;
  p->has_balance = plane.record.has_balance;
  p->planes = static_cast<uint8_t*>(c.planes);
  p->plane_stride = c.plane_stride;
  p->n_kv_heads = c.n_kv_heads;
  p->n_writes = c.n_rows;
  p->rows = c.rows;
  p->x = reinterpret_cast<const uint8_t*>(c.x);
  p->x_row_stride = c.row_stride;
  p->x_head_stride = c.head_stride;
  p->query = reinterpret_cast<const uint8_t*>(c.query);
  p->heads_per_kv = c.heads_per_kv;
  p->query_row_stride = c.query_row_stride;
  p->query_head_stride = c.query_head_stride;
  return KVARN_OK;
}

}  // namespace
}  // namespace kvarn::cuda

kvarn_status kvarn_cuda_planes_write(const kvarn_cuda_plane_write* call, void* stream) {
  if (call == nullptr) return KVARN_ERROR_ARGUMENT;
  kvarn_status status = kvarn::cuda::Check(*call);
  if (status != KVARN_OK || call->n_streams == 0 || call->n_rows == 0) return status;
  kvarn::cuda::PlaneWriteParams params;
  status = kvarn::cuda::MakeParams(*call, &params);
  if (status != KVARN_OK) return status;
  if (call->plane->config.format.role == KVARN_KEY) {
    kvarn::cuda::LaunchPlaneWriteKey(params, call->n_streams, stream);
  } else {
    kvarn::cuda::LaunchPlaneWriteValue(params, call->n_streams, stream);
  }
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}
