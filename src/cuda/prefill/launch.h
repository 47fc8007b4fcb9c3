// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/prefill/params.h"

namespace kvarn::cuda {

// A compiled kernel and how it is started.
struct PrefillVariant {
  int rows;            // query rows of a CTA
  int rows_bytes;      // of shared memory, without the records
  int record_buffers;  // record pairs in shared memory
  cudaError_t (*launch)(const PrefillParams& params, int shared_bytes, void* stream);

  int TilesAt(const PrefillParams& params) const {
    return rows_bytes + record_buffers * (params.key_bytes + params.value_bytes);
  }
  int64_t SharedBytes(const PrefillParams& params) const {
    return TilesAt(params) + int64_t{12} * params.n_tile_words;
  }
};

// What a compiled instance of the prefill kernel serves.
struct PrefillInstance {
  int key_dim, value_dim, group;
  PrefillVariant plain;  // on any device
  PrefillVariant ahead;  // on compute capability 9; launch is null where there is none
};

// The compiled instance that serves the call, or null.
const PrefillInstance* FindPrefillInstance(const kvarn_cuda_prefill& call);

}  // namespace kvarn::cuda
