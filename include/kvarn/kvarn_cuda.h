// SPDX-License-Identifier: Apache-2.0
//
// kvarn on CUDA devices (C ABI). The conventions of kvarn.h hold; in addition every pointer named
// "device" is device memory, `stream` is a cudaStream_t, and all calls only enqueue work on it:
// none waits, allocates device memory or reads device memory on the host, so each may be captured
// in a CUDA graph.
#ifndef KVARN_KVARN_CUDA_H_
#define KVARN_KVARN_CUDA_H_

#include "kvarn/kvarn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kvarn_dtype KVARN_ENUM_TYPE { KVARN_FP16 = 0, KVARN_BF16 = 1 } kvarn_dtype;

// One tile to encode; an array of these lies in device memory.
typedef struct kvarn_cuda_tile {
  const void* rows;       // device: row of position 0, head_dim 16-bit values
  int64_t row_stride;     // bytes from one position to the next
  const int8_t* balance;  // device [head_dim], or null (all zero); ignored for values
  void* record;           // device, kvarn_record_bytes(format), aligned to 16
  uint64_t written[2];    // one bit a position that holds a row; at least one
} kvarn_cuda_tile;

// Encode n_tiles tiles. format->order must be KVARN_ORDER_CUDA, format->mode KVARN_BALANCED and
// format->head_dim at most 256; otherwise KVARN_ERROR_FORMAT or KVARN_ERROR_UNSUPPORTED.
//   tiles   device [n_tiles]
//   counts  device, added to, may be null
// The records are those of kvarn_encode, byte for byte.
KVARN_API kvarn_status kvarn_cuda_encode(const kvarn_format* format, kvarn_dtype dtype,
                                         const kvarn_cuda_tile* tiles, int32_t n_tiles,
                                         kvarn_counts* counts, void* stream);

#ifdef __cplusplus
}  // extern "C"
#endif
#endif  // KVARN_KVARN_CUDA_H_
