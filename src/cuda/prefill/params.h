// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {

struct PrefillParams {
  kvarn_cuda_prefill call;
  int32_t heads_per_kv;
  int32_t n_blocks;                // of query rows, at most, over all sequences
  int32_t key_bytes, value_bytes;  // of a record
  int32_t key_balance_at;          // offset of e in a K record
  bool general;                    // soft-cap, ALiBi or mask
  float key_rotation_scale, value_rotation_scale;
  const int8_t* key_small;  // device, small Hadamard matrices, or null
  const int8_t* value_small;
};

}  // namespace kvarn::cuda
