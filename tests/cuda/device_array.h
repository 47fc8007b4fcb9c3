// SPDX-License-Identifier: Apache-2.0
#ifndef KVARN_TESTS_CUDA_DEVICE_ARRAY_H_
#define KVARN_TESTS_CUDA_DEVICE_ARRAY_H_

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace kvarn_cuda_test {

inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

inline bool HasDevice() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    Check(cudaMalloc(&data_, (count > 0 ? count : 1) * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) { Upload(host); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() { return static_cast<T*>(data_); }
  size_t bytes() const { return count_ * sizeof(T); }
  void Upload(const std::vector<T>& host) {
    Check(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  std::vector<T> Download() {
    std::vector<T> host(count_);
    Check(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return host;
  }

 private:
  void* data_ = nullptr;
  size_t count_;
};

}  // namespace kvarn_cuda_test
#endif  // KVARN_TESTS_CUDA_DEVICE_ARRAY_H_
