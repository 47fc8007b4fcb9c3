// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {

// kvarn_cuda_encode after its checks of arguments.
kvarn_status Encode(const kvarn_format& format, kvarn_dtype dtype, const kvarn_cuda_tile* tiles,
                    int n_tiles, kvarn_counts* counts, void* stream);

}  // namespace kvarn::cuda
