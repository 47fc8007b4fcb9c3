// SPDX-License-Identifier: Apache-2.0
//
// The calls of the CUDA runtime that the append test makes, on host memory, and the encoder of the
// CPU library in the place of the one for GPUs.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "../sixteen_bit.h"
#include "cuda/encode/encode.h"

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  constexpr size_t kAlign = 256;
  *pointer = std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
  return *pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaFree(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

size_t kvarn_cuda_decode_workspace_bytes(const kvarn_cuda_decode*) { return 0; }
kvarn_status kvarn_cuda_decode_plan(const kvarn_cuda_decode*, void*, void*) {
  return KVARN_ERROR_UNSUPPORTED;
}
kvarn_status kvarn_cuda_decode_run(const kvarn_cuda_decode*, void*, void*) {
  return KVARN_ERROR_UNSUPPORTED;
}

}  // extern "C"

namespace kvarn::cuda {

kvarn_status Encode(const kvarn_format& format, kvarn_dtype dtype, const kvarn_cuda_tile* tiles,
                    int n_tiles, kvarn_counts* counts, void*) {
  for (int i = 0; i < n_tiles; ++i) {
    const kvarn_cuda_tile& tile = tiles[i];
    if (tile.written[0] == 0) continue;
    std::vector<float> values;
    for (int g = 0; g < format.group; ++g) {
      const bool later = tile.later_rows != nullptr && g >= tile.later_from;
      const auto* row = reinterpret_cast<const uint16_t*>(
          static_cast<const uint8_t*>(later ? tile.later_rows : tile.rows) +
          g * (later ? tile.later_row_stride : tile.row_stride));
      for (int d = 0; d < format.head_dim; ++d) {
        values.push_back(kvarn_cuda_test::ToFloat(row[d], dtype));
      }
    }
    const kvarn_status status =
        kvarn_encode(&format, values.data(), format.group, nullptr,
                     format.role == KVARN_KEY ? tile.balance : nullptr, tile.record, counts);
    if (status != KVARN_OK) return status;
  }
  return KVARN_OK;
}

}  // namespace kvarn::cuda
