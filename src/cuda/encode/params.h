// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "format/record_layout.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {

// Arguments of the encode kernels; pointers are device memory.
struct EncodeParams {
  const kvarn_cuda_tile* tiles;  // [n_tiles]
  int n_tiles;
  RecordLayout layout;  // order cuda
  int head_dim;         // <= 32 * columns of the instance
  int group;
  int bits;
  bool bf16;  // rows are bf16, else fp16
  // Rotation (codec/rotation.h); `small` [small_dim][small_dim] or null.
  int small_dim;
  int block;
  const int8_t* small;
  float rotation_scale;
  kvarn_counts* counts;  // device, or null
};

// kColumns = ceil(head_dim / 32) of the instance; one CTA a tile.
void LaunchEncodeKey(const EncodeParams& params, void* stream);
void LaunchEncodeValue(const EncodeParams& params, void* stream);

}  // namespace kvarn::cuda
