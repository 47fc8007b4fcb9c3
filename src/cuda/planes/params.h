// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the kernel that writes rows into planes. Pointers are device memory.
#pragma once

#include <cstdint>

#include "cache/plane.h"
#include "cuda/encode/params.h"

namespace kvarn::cuda {

inline constexpr int kMaxPlaneSlots = 64;  // one bit each

struct PlaneWriteParams {
  EncodeParams encode;  // without tiles and counts
  // kvarn_plane, without what only the host needs.
  size_t tiles_at, slots_at, queries_at, exact_at, records_at;
  int64_t n_rows;
  int32_t tail_rows, sink_tiles, n_slots;
  bool has_balance;
  uint8_t* planes;  // [n_streams][n_kv_heads]
  int64_t plane_stride;
  int32_t n_kv_heads;
  // The rows of the call.
  int32_t n_writes;
  const int64_t* rows;  // [n_writes] stream * n_rows + row
  const uint8_t* x;     // fp32 rows
  int64_t x_row_stride, x_head_stride;
  const uint8_t* query;  // fp32 rows, or null
  int32_t heads_per_kv;
  int64_t query_row_stride, query_head_stride;
};

// One CTA a plane; kColumns as for the encoder.
void LaunchPlaneWriteKey(const PlaneWriteParams& params, int n_streams, void* stream);
void LaunchPlaneWriteValue(const PlaneWriteParams& params, int n_streams, void* stream);

}  // namespace kvarn::cuda
