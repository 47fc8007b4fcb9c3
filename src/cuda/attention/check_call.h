// SPDX-License-Identifier: Apache-2.0
//
// What decode and prefill attention ask of a call alike.
#pragma once

#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {

inline bool HasTileTable(const kvarn_cuda_decode& call) { return call.tile_table != nullptr; }

// Whether queries and outputs are fp32 beside 16-bit rows.
inline bool HasFloatQueries(const kvarn_cuda_decode& call) {
  return call.query_dtype == KVARN_FP32;
}

// Formats, shapes and options: KVARN_OK, KVARN_ERROR_FORMAT or KVARN_ERROR_ARGUMENT.
kvarn_status CheckCall(const kvarn_cuda_decode& call);

// Pointers that must be there, and alignments: KVARN_OK or KVARN_ERROR_ARGUMENT.
kvarn_status CheckCallPointers(const kvarn_cuda_decode& call);

}  // namespace kvarn::cuda
