// SPDX-License-Identifier: Apache-2.0
//
// A block of recent copies in device memory (kvarn_cuda_recent_*), laid out by shapes alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/plane.h"
#include "cuda/attention/shape.h"
#include "cuda/common/check.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {

struct RecentLayout {
  int32_t n_tiles;  // of a stream
  int32_t n_streams;
  int32_t n_copies;  // room for so many tiles of all streams
  size_t places;     // int32 [n_streams][n_tiles]: which copy a tile has, or -1
  size_t tiles;      // int32 [n_copies]: stream * n_tiles + tile, or -1
  size_t rows;       // int32 [n_copies][G]: row of the call, or -1: as it was
  size_t keys;       // fp16 [heads][n_copies][G][D]
  size_t values;     // likewise
  size_t bytes;
};

// All zero if the calls need no copies.
inline RecentLayout MakeRecentLayout(const kvarn_plane& key, const kvarn_plane& value,
                                     int32_t n_streams, int32_t n_kv_heads, int32_t n_rows) {
  RecentLayout r = {};
  if (n_rows <= key.config.tail_rows || n_streams < 1) return r;
  const auto align = [](size_t bytes) { return AlignUp(bytes, 256); };
  const auto group = static_cast<size_t>(key.Group());
  r.n_tiles = static_cast<int32_t>(key.n_tiles);
  r.n_streams = n_streams;
  // Tiles that rows in order touch, and those that are open before in the few streams that have
  // many rows.
  const int32_t whole_tiles = n_rows / key.Group();
  const int32_t streams = n_streams < whole_tiles + 1 ? n_streams : whole_tiles + 1;
  r.n_copies = whole_tiles + 2 * n_streams + key.n_slots * streams;
  const auto copies = static_cast<size_t>(r.n_copies);
  const auto heads = static_cast<size_t>(n_kv_heads);
  const auto all = static_cast<size_t>(n_streams) * static_cast<size_t>(r.n_tiles);
  r.places = 0;
  r.tiles = r.places + align(sizeof(int32_t) * all);
  r.rows = r.tiles + align(sizeof(int32_t) * copies);
  r.keys = r.rows + align(sizeof(int32_t) * copies * group);
  const size_t row = sizeof(uint16_t) * heads * copies * group;
  r.values = r.keys + align(row * static_cast<size_t>(key.HeadDim()));
  r.bytes = r.values + align(row * static_cast<size_t>(value.HeadDim()));
  return r;
}

// Whether the calls are K and V of the same rows.
inline bool IsRecentLegal(const kvarn_cuda_plane_write* calls) {
  if (calls == nullptr || calls[0].plane == nullptr || calls[1].plane == nullptr) return false;
  const kvarn_cuda_plane_write& k = calls[0];
  const kvarn_cuda_plane_write& v = calls[1];
  const kvarn_plane_config& key = k.plane->config;
  const kvarn_plane_config& value = v.plane->config;
  return IsCudaRecord(key.format, KVARN_KEY) && IsCudaRecord(value.format, KVARN_VALUE) &&
         key.format.group == value.format.group && key.n_rows == value.n_rows &&
         key.tail_rows == value.tail_rows && k.n_streams == v.n_streams &&
         k.n_kv_heads == v.n_kv_heads && k.n_rows == v.n_rows && k.n_kv_heads > 0;
}

inline RecentLayout LayoutOfRecent(const kvarn_cuda_plane_write* calls) {
  if (!IsRecentLegal(calls)) return {};
  return MakeRecentLayout(*calls[0].plane, *calls[1].plane, calls[0].n_streams, calls[0].n_kv_heads,
                          calls[0].n_rows);
}

struct RecentSource {
  const uint8_t* planes;
  int64_t plane_stride;
  size_t tiles_at, slots_at, exact_at;
  const uint8_t* x;
  int64_t x_row_stride, x_head_stride;
  int32_t dim;
  uint16_t* copies;
};

struct RecentParams {
  RecentLayout layout;
  uint8_t* block;
  int64_t plane_rows;
  int32_t n_kv_heads, group, n_slots, sink_tiles;
  int32_t n_rows;
  const int64_t* rows;
  RecentSource source[2];  // K and V
};

void LaunchRecentBegin(const RecentParams& params, void* stream);
void LaunchRecentCopy(const RecentParams& params, void* stream);

}  // namespace kvarn::cuda
