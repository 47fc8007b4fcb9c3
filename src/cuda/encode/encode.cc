// SPDX-License-Identifier: Apache-2.0
//
// Host side of the encode kernels.
#include <cuda_runtime_api.h>

#include <array>
#include <mutex>

#include "codec/rotation.h"
#include "cuda/encode/params.h"

namespace kvarn::cuda {
namespace {

constexpr int kMaxCudaHeadDim = 256;
constexpr int kMaxDevices = 64;

// The small Hadamard matrix of a head dim on the current device. Uploaded once and kept, because
// captured graphs refer to it. Null without a matrix; `ok` false if the upload failed.
const int8_t* SmallMatrix(const Rotation& rotation, bool* ok) {
  static std::mutex mutex;
  static std::array<std::array<int8_t*, kMaxCudaHeadDim / 8 + 1>, kMaxDevices> uploaded = {};
  *ok = true;
  if (rotation.small == nullptr) return nullptr;
  int device = 0;
  *ok = cudaGetDevice(&device) == cudaSuccess && device < kMaxDevices;
  if (!*ok) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  int8_t*& matrix =
      uploaded[static_cast<size_t>(device)][static_cast<size_t>(rotation.head_dim / 8)];
  if (matrix != nullptr) return matrix;
  const auto bytes = static_cast<size_t>(rotation.small_dim * rotation.small_dim);
  void* memory = nullptr;
  *ok = cudaMalloc(&memory, bytes) == cudaSuccess &&
        cudaMemcpy(memory, rotation.small, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
  if (!*ok) {
    cudaFree(memory);
    return nullptr;
  }
  matrix = static_cast<int8_t*>(memory);
  return matrix;
}

}  // namespace

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
