// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/prefill/params.h"

namespace kvarn::cuda {

// What a compiled instance of the prefill kernel serves and how it is started.
struct PrefillInstance {
  int key_dim, value_dim, group;
  int rows_bytes;  // of shared memory, without the records
  cudaError_t (*launch)(const PrefillParams& params, int shared_bytes, void* stream);

  int SharedBytes(const PrefillParams& params) const {
    return rows_bytes + params.key_bytes + params.value_bytes;
  }
};

// The compiled instance that serves the call, or null.
const PrefillInstance* FindPrefillInstance(const kvarn_cuda_prefill& call);

}  // namespace kvarn::cuda
