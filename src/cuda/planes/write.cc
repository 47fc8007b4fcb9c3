// SPDX-License-Identifier: Apache-2.0
//
// Host side of writing rows into planes on a device: checks, workspace, launch.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cache/plane.h"
#include "codec/rotation.h"
#include "cuda/attention/shape.h"
#include "cuda/common/check.h"
#include "cuda/common/small_matrix.h"
#include "cuda/planes/params.h"
#include "cuda/planes/recent.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {
namespace {

constexpr int kMaxHeadsPerKv = 16;
constexpr int kMaxPlanes = 65535;  // of a call: a grid's y
constexpr size_t kAlign = 256;
constexpr size_t kTakenAlign = 64;

bool IsEmpty(const kvarn_cuda_plane_write& c) { return c.n_streams == 0 || c.n_rows == 0; }

kvarn_status CheckShape(const kvarn_cuda_plane_write& c) {
  if (c.plane == nullptr || c.n_streams < 0 || c.n_kv_heads < 1 || c.n_rows < 0) {
    return KVARN_ERROR_ARGUMENT;
  }
  const kvarn_plane& plane = *c.plane;
  if (!IsCudaRecord(plane.config.format, plane.config.format.role)) return KVARN_ERROR_FORMAT;
  const bool supported = plane.HeadDim() <= kMaxCudaHeadDim && plane.n_slots <= kMaxPlaneSlots &&
                         c.heads_per_kv <= kMaxHeadsPerKv &&
                         int64_t{c.n_streams} * c.n_kv_heads <= kMaxPlanes;
  return supported ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}

kvarn_status CheckShapes(const kvarn_cuda_plane_write* calls, int32_t n_calls) {
  if (n_calls < 0 || n_calls > kMaxPlaneCalls || (calls == nullptr && n_calls > 0)) {
    return KVARN_ERROR_ARGUMENT;
  }
  for (int i = 0; i < n_calls; ++i) {
    const kvarn_status status = CheckShape(calls[i]);
    if (status != KVARN_OK) return status;
  }
  return KVARN_OK;
}

bool TakesRows(const kvarn_cuda_plane_write& c) { return c.n_rows <= kMostTakenRows; }

kvarn_status CheckPointers(const kvarn_cuda_plane_write& c) {
  if (IsEmpty(c)) return KVARN_OK;
  const int64_t strides = c.row_stride | c.head_stride | c.query_row_stride | c.query_head_stride;
  const bool legal = c.planes != nullptr && Aligned(c.planes, 64) && c.plane_stride % 64 == 0 &&
                     c.plane_stride >= 0 && static_cast<size_t>(c.plane_stride) >= c.plane->bytes &&
                     c.rows != nullptr && c.x != nullptr && strides % 4 == 0 && Aligned(c.x, 4) &&
                     Aligned(c.query, 4) && (c.query == nullptr || c.heads_per_kv > 0) &&
                     Aligned(c.taken, kTakenAlign) && (c.taken == nullptr || TakesRows(c));
  return legal ? KVARN_OK : KVARN_ERROR_ARGUMENT;
}

// Whether tiles can begin and end within the call; others are too few to be worth a second kernel.
bool LeavesJobs(const kvarn_cuda_plane_write& c) { return c.n_rows >= c.plane->Group(); }

// A tile for each slot, whose memory it may read, and those that consist of rows of the call.
int JobsOfPlane(const kvarn_cuda_plane_write& c) {
  return c.plane->n_slots + c.n_rows / c.plane->Group();
}

struct Workspace {
  size_t jobs, slot_rows, bytes;
};

// `begin` is where that of the call before ends.
Workspace MakeWorkspace(const kvarn_cuda_plane_write& c, size_t begin) {
  const auto planes = static_cast<size_t>(c.n_streams) * static_cast<size_t>(c.n_kv_heads);
  Workspace w = {begin, begin, begin};
  if (IsEmpty(c) || !LeavesJobs(c)) return w;
  w.slot_rows =
      w.jobs + AlignUp(sizeof(PlaneJob) * planes * static_cast<size_t>(JobsOfPlane(c)), kAlign);
  w.bytes = w.slot_rows +
            AlignUp(sizeof(CallRows) * planes * static_cast<size_t>(c.plane->n_slots), kAlign);
  return w;
}

kvarn_status MakeParams(const kvarn_cuda_plane_write& c, PlaneWriteParams* p) {
  const kvarn_plane& plane = *c.plane;
  const Rotation* rotation = FindRotation(plane.HeadDim());
  if (rotation == nullptr) return KVARN_ERROR_MEMORY;
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
  p->key = plane.config.format.role == KVARN_KEY;
  p->tiles_at = plane.tiles;
  p->slots_at = plane.slots;
  p->queries_at = plane.queries;
  p->exact_at = plane.exact;
  p->records_at = plane.records;
  p->n_rows = plane.config.n_rows;
  p->tail_rows = plane.config.tail_rows;
  p->sink_tiles = plane.config.sink_tiles;
  p->n_slots = plane.n_slots;
  p->planes = static_cast<uint8_t*>(c.planes);
  p->plane_stride = c.plane_stride;
  p->n_streams = c.n_streams;
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
  p->taken = static_cast<TakenRows*>(c.taken);
  return KVARN_OK;
}

// Which launches of a write are asked for.
enum class Part { kAll, kFirst, kRest };

template <int kColumns>
void Launch(PlaneWriteCalls* params, int n, Part part, void* stream) {
  if (part != Part::kRest) PlaneWriteKernels<kColumns>::LaunchWrite(*params, n, stream);
  for (int i = 0; i < n; ++i) params->call[i].rest = part == Part::kRest;
  PlaneWriteKernels<kColumns>::LaunchJobs(*params, n, stream);
}

// `recent` is the block that attention reads copies from until the rest is done, or null.
kvarn_status Write(const kvarn_cuda_plane_write* calls, int32_t n_calls, const void* recent,
                   void* workspace, Part part, void* stream) {
  kvarn_status status = CheckShapes(calls, n_calls);
  if (status != KVARN_OK) return status;
  if (!Aligned(workspace, kAlign)) return KVARN_ERROR_ARGUMENT;
  for (int i = 0; i < n_calls; ++i) {
    status = CheckPointers(calls[i]);
    if (status != KVARN_OK) return status;
  }
  RecentLayout copies = {};
  if (recent != nullptr) {
    if (n_calls != kMaxPlaneCalls || !Aligned(recent, kAlign)) return KVARN_ERROR_ARGUMENT;
    copies = LayoutOfRecent(calls);
    if (copies.bytes == 0) return KVARN_ERROR_ARGUMENT;
  }
  PlaneWriteCalls params = {};
  int n = 0;
  int dim = 0;
  size_t bytes = 0;
  for (int i = 0; i < n_calls; ++i) {
    const kvarn_cuda_plane_write& call = calls[i];
    if (IsEmpty(call)) continue;
    PlaneWriteParams& p = params.call[n++];
    status = MakeParams(call, &p);
    if (status != KVARN_OK) return status;
    dim = std::max(dim, call.plane->HeadDim());
    const Workspace w = MakeWorkspace(call, bytes);
    bytes = w.bytes;
    if (workspace == nullptr || !LeavesJobs(call)) continue;
    auto* base = static_cast<uint8_t*>(workspace);
    p.jobs = reinterpret_cast<PlaneJob*>(base + w.jobs);
    p.n_jobs = JobsOfPlane(call);
    p.slot_rows = reinterpret_cast<CallRows*>(base + w.slot_rows);
    if (recent == nullptr) continue;
    p.places =
        reinterpret_cast<const int32_t*>(static_cast<const uint8_t*>(recent) + copies.places);
    p.n_tiles = copies.n_tiles;
  }
  if (n == 0) return KVARN_OK;
  const auto launch = dim <= 64 ? Launch<2> : dim <= 128 ? Launch<4> : Launch<8>;
  launch(&params, n, part, stream);
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}

kvarn_status Take(const kvarn_cuda_plane_write* calls, int32_t n_calls, void* stream) {
  if (n_calls < 0 || (calls == nullptr && n_calls > 0)) return KVARN_ERROR_ARGUMENT;
  for (int i = 0; i < n_calls; ++i) {
    kvarn_status status = CheckShape(calls[i]);
    if (status == KVARN_OK) status = CheckPointers(calls[i]);
    if (status != KVARN_OK) return status;
    if (!IsEmpty(calls[i]) && calls[i].taken == nullptr) return KVARN_ERROR_ARGUMENT;
  }
  PlaneTakeCalls params = {};
  int n = 0;
  int dim = 0;
  for (int i = 0; i < n_calls; ++i) {
    if (!IsEmpty(calls[i])) {
      const kvarn_status status = MakeParams(calls[i], &params.call[n++]);
      if (status != KVARN_OK) return status;
      dim = std::max(dim, calls[i].plane->HeadDim());
    }
    if (n == kMaxTakenCalls || (i + 1 == n_calls && n > 0)) {
      LaunchTake(params, n, stream);
      const auto launch_rest = dim <= 64    ? PlaneWriteKernels<2>::LaunchTakeRest
                               : dim <= 128 ? PlaneWriteKernels<4>::LaunchTakeRest
                                            : PlaneWriteKernels<8>::LaunchTakeRest;
      launch_rest(params, n, stream);
      n = dim = 0;
    }
  }
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}

}  // namespace
}  // namespace kvarn::cuda

size_t kvarn_cuda_planes_taken_bytes(const kvarn_cuda_plane_write* call) {
  using namespace kvarn::cuda;
  if (call == nullptr || CheckShape(*call) != KVARN_OK || !TakesRows(*call)) return 0;
  const auto planes = static_cast<size_t>(call->n_streams) * static_cast<size_t>(call->n_kv_heads);
  return kTakenAlign + sizeof(TakenRows) * planes;  // never 0 for a legal call
}

kvarn_status kvarn_cuda_planes_take(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                    void* stream) {
  return kvarn::cuda::Take(calls, n_calls, stream);
}

size_t kvarn_cuda_planes_write_workspace_bytes(const kvarn_cuda_plane_write* calls,
                                               int32_t n_calls) {
  if (kvarn::cuda::CheckShapes(calls, n_calls) != KVARN_OK) return 0;
  size_t bytes = 0;
  for (int i = 0; i < n_calls; ++i) bytes = kvarn::cuda::MakeWorkspace(calls[i], bytes).bytes;
  // More than the arrays: a legal call that needs none must not answer 0.
  return bytes + kvarn::cuda::kAlign;
}

kvarn_status kvarn_cuda_planes_write(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                     void* workspace, void* stream) {
  return kvarn::cuda::Write(calls, n_calls, nullptr, workspace, kvarn::cuda::Part::kAll, stream);
}

kvarn_status kvarn_cuda_planes_write_first(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                           const void* recent, void* workspace, void* stream) {
  return kvarn::cuda::Write(calls, n_calls, recent, workspace, kvarn::cuda::Part::kFirst, stream);
}

kvarn_status kvarn_cuda_planes_write_rest(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                          const void* recent, void* workspace, void* stream) {
  if (recent == nullptr) return KVARN_ERROR_ARGUMENT;
  return kvarn::cuda::Write(calls, n_calls, recent, workspace, kvarn::cuda::Part::kRest, stream);
}
