// SPDX-License-Identifier: Apache-2.0
//
// Host side of recent copies: checks and launches.
#include "cuda/planes/recent.h"

#include <cuda_runtime_api.h>

namespace kvarn::cuda {
namespace {

kvarn_status MakeParams(const kvarn_cuda_plane_write* calls, void* recent, RecentParams* p) {
  *p = {};
  p->layout = LayoutOfRecent(calls);
  if (p->layout.bytes == 0 || recent == nullptr || !Aligned(recent, 256)) {
    return KVARN_ERROR_ARGUMENT;
  }
  p->block = static_cast<uint8_t*>(recent);
  p->plane_rows = calls[0].plane->config.n_rows;
  p->n_kv_heads = calls[0].n_kv_heads;
  p->group = calls[0].plane->Group();
  p->n_slots = calls[0].plane->n_slots;
  p->sink_tiles = calls[0].plane->config.sink_tiles;
  p->n_rows = calls[0].n_rows;
  p->rows = calls[0].rows;
  for (int part = 0; part < 2; ++part) {
    const kvarn_cuda_plane_write& c = calls[part];
    if (c.planes == nullptr || c.rows == nullptr || c.x == nullptr) return KVARN_ERROR_ARGUMENT;
    RecentSource& s = p->source[part];
    s.planes = static_cast<const uint8_t*>(c.planes);
    s.plane_stride = c.plane_stride;
    s.tiles_at = c.plane->tiles;
    s.slots_at = c.plane->slots;
    s.exact_at = c.plane->exact;
    s.x = reinterpret_cast<const uint8_t*>(c.x);
    s.x_row_stride = c.row_stride;
    s.x_head_stride = c.head_stride;
    s.dim = c.plane->HeadDim();
    s.copies =
        reinterpret_cast<uint16_t*>(p->block + (part == 0 ? p->layout.keys : p->layout.values));
  }
  return KVARN_OK;
}

}  // namespace
}  // namespace kvarn::cuda

size_t kvarn_cuda_recent_bytes(const kvarn_cuda_plane_write* calls) {
  return kvarn::cuda::LayoutOfRecent(calls).bytes;
}

kvarn_status kvarn_cuda_recent_begin(const kvarn_cuda_plane_write* calls, void* recent,
                                     void* stream) {
  kvarn::cuda::RecentParams params;
  const kvarn_status status = kvarn::cuda::MakeParams(calls, recent, &params);
  if (status != KVARN_OK) return status;
  kvarn::cuda::LaunchRecentBegin(params, stream);
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}

kvarn_status kvarn_cuda_recent_copy(const kvarn_cuda_plane_write* calls, void* recent,
                                    void* stream) {
  kvarn::cuda::RecentParams params;
  const kvarn_status status = kvarn::cuda::MakeParams(calls, recent, &params);
  if (status != KVARN_OK) return status;
  kvarn::cuda::LaunchRecentCopy(params, stream);
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}

kvarn_status kvarn_cuda_recent_view(const kvarn_cuda_plane_write* calls, const void* recent,
                                    int32_t first_stream, kvarn_cuda_recent* view) {
  const kvarn::cuda::RecentLayout layout = kvarn::cuda::LayoutOfRecent(calls);
  if (layout.bytes == 0 || recent == nullptr || view == nullptr || first_stream < 0 ||
      first_stream >= layout.n_streams) {
    return KVARN_ERROR_ARGUMENT;
  }
  const auto* block = static_cast<const uint8_t*>(recent);
  const int64_t row = int64_t{sizeof(uint16_t)} * layout.n_copies * calls[0].plane->Group();
  *view = {};
  view->places = reinterpret_cast<const int32_t*>(block + layout.places) +
                 static_cast<int64_t>(first_stream) * layout.n_tiles;
  view->places_stride = layout.n_tiles;
  view->keys = block + layout.keys;
  view->values = block + layout.values;
  view->key_head_stride = row * calls[0].plane->HeadDim();
  view->value_head_stride = row * calls[1].plane->HeadDim();
  return KVARN_OK;
}
