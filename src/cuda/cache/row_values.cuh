// SPDX-License-Identifier: Apache-2.0
//
// 16-bit values of rows.
#pragma once

#include <cuda_fp16.h>

#include "cuda/cache/append_params.h"

namespace kvarn::cuda {

__device__ __forceinline__ float ToValue(uint16_t bits, kvarn_dtype dtype) {
  return dtype == KVARN_BF16 ? __uint_as_float(static_cast<uint32_t>(bits) << 16)
                             : __half2float(__ushort_as_half(bits));
}

// Whether both values of a word are finite.
__device__ __forceinline__ bool BothFinite(uint32_t word, kvarn_dtype dtype) {
  const uint32_t low = dtype == KVARN_BF16 ? 0x7F80U : 0x7C00U;
  return (word & low) != low && (word & (low << 16)) != low << 16;
}

}  // namespace kvarn::cuda
