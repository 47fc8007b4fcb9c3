// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cache/plane.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {

struct TileTableParams {
  const uint8_t* entries;  // device: TileEntry of tile 0 of the first head of stream 0
  int64_t stream_stride;
  int32_t n_rows, n_tiles, group;
  const int32_t* places;  // which recent copy a tile has, or null (kvarn_cuda_recent)
  int32_t places_stride;
  int32_t* table;    // device, out [n_streams][n_tiles] for kvarn_cuda_decode
  int32_t* lengths;  // device, out [n_streams]
};

void LaunchTileTable(const TileTableParams& params, int n_streams, void* stream);

}  // namespace kvarn::cuda
