// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/small_matrix.h"

#include <cuda_runtime_api.h>

#include <array>
#include <mutex>

namespace kvarn::cuda {
namespace {

constexpr int kMaxDevices = 64;

}  // namespace

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
  // A copy from pageable memory may return before it has ended, and kernels on streams that do not
  // wait for the default one come next.
  *ok = cudaMalloc(&memory, bytes) == cudaSuccess &&
        cudaMemcpy(memory, rotation.small, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
        cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess;
  if (!*ok) {
    cudaFree(memory);
    cudaGetLastError();  // not to be taken for the error of a later call
    return nullptr;
  }
  matrix = static_cast<int8_t*>(memory);
  return matrix;
}

}  // namespace kvarn::cuda
