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
  // Options, so that the device need not divide: soft-cap in log2 units, 0 = none, and 1 / that;
  // ALiBi's factor from head to head and how many heads it counts for, the others take halves.
  float cap, to_cap;
  float bias_step;
  int32_t bias_heads;
  bool general;                 // soft-cap, ALiBi or mask
  bool general_plain;           // likewise, for tiles that all rows of a block see
  bool listed;                  // with a tile table
  bool aligned_mask;            // with one, rows of the mask to 16 bytes
  int32_t blocks_per_sequence;  // then
  int32_t n_tile_words;         // of 32 tiles; three sets of bits in shared memory
  int32_t tiles_at;             // there
  float key_rotation_scale, value_rotation_scale;
  const int8_t* key_small;  // device, small Hadamard matrices, or null
  const int8_t* value_small;
};

}  // namespace kvarn::cuda
