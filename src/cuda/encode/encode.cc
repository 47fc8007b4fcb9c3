// SPDX-License-Identifier: Apache-2.0
//
// Host side of the encode kernels.
#include "cuda/encode/encode.h"

#include <cuda_runtime_api.h>

#include "codec/rotation.h"
#include "cuda/common/small_matrix.h"
#include "cuda/encode/params.h"

namespace kvarn::cuda {

kvarn_status Encode(const kvarn_format& format, kvarn_dtype dtype, const kvarn_cuda_tile* tiles,
                    int n_tiles, kvarn_counts* counts, void* stream) {
  if (!IsLegal(format) || format.order != KVARN_ORDER_CUDA) return KVARN_ERROR_FORMAT;
  if (format.mode != KVARN_BALANCED || format.head_dim > kMaxCudaHeadDim) {
    return KVARN_ERROR_UNSUPPORTED;
  }
  const Rotation* rotation = FindRotation(format.head_dim);
  if (rotation == nullptr) return KVARN_ERROR_MEMORY;
  EncodeParams params = {};
  bool ok = false;
  params.small = SmallMatrix(*rotation, &ok);
  if (!ok) return KVARN_ERROR_MEMORY;
  params.tiles = tiles;
  params.n_tiles = n_tiles;
  params.layout = MakeRecordLayout(format);
  params.head_dim = format.head_dim;
  params.group = format.group;
  params.bits = format.bits;
  params.bf16 = dtype == KVARN_BF16;
  params.small_dim = rotation->small_dim;
  params.block = rotation->block;
  params.rotation_scale = rotation->scale;
  params.counts = counts;
  if (n_tiles == 0) return KVARN_OK;
  if (format.role == KVARN_KEY) {
    LaunchEncodeKey(params, stream);
  } else {
    LaunchEncodeValue(params, stream);
  }
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}

}  // namespace kvarn::cuda

kvarn_status kvarn_cuda_encode(const kvarn_format* format, kvarn_dtype dtype,
                               const kvarn_cuda_tile* tiles, int32_t n_tiles, kvarn_counts* counts,
                               void* stream) {
  if (format == nullptr || n_tiles < 0 || (tiles == nullptr && n_tiles > 0) ||
      (dtype != KVARN_FP16 && dtype != KVARN_BF16)) {
    return KVARN_ERROR_ARGUMENT;
  }
  return kvarn::cuda::Encode(*format, dtype, tiles, n_tiles, counts, stream);
}
