// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "cuda/succeeded.h"
#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

class DeviceMemory final : public KvMemory {
 public:
  explicit DeviceMemory(int gpu) : gpu_(gpu) {}

  bool IsHost() const override { return false; }
  uint8_t* Map(size_t bytes) override {
    cudaSetDevice(gpu_);
    void* memory = nullptr;
    if (!Succeeded(cudaMalloc(&memory, bytes))) {
      LogError("CUDA%d has no %.2f MiB left", gpu_, static_cast<double>(bytes) / 1048576.0);
      return nullptr;
    }
    Zero(static_cast<uint8_t*>(memory), bytes);
    return static_cast<uint8_t*>(memory);
  }
  void Unmap(uint8_t* memory, size_t) override {
    cudaSetDevice(gpu_);
    cudaFree(memory);
  }
  void Zero(uint8_t* memory, size_t bytes) override {
    Await();
    Finish(cudaMemsetAsync(memory, 0, bytes, cudaStreamPerThread));
  }
  void Copy(uint8_t* to, const uint8_t* from, size_t bytes) override {
    Transfer(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void Store(uint8_t* to, const void* from, size_t bytes) override {
    Transfer(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void Load(void* to, const uint8_t* from, size_t bytes) override {
    Transfer(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void LoadPieces(void* to, const uint8_t* from, size_t stride, size_t bytes, size_t n) override {
    Await();
    Finish(cudaMemcpy2DAsync(to, bytes, from, stride, bytes, n, cudaMemcpyDeviceToHost,
                             cudaStreamPerThread));
  }

  void Follow(cudaEvent_t done) {
    const std::lock_guard<std::mutex> lock(mutex_);
    followed_.insert(done);
  }
  void Unfollow(cudaEvent_t done) {
    const std::lock_guard<std::mutex> lock(mutex_);
    followed_.erase(done);
  }

 private:
  void Await() {
    cudaSetDevice(gpu_);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (cudaEvent_t done : followed_) cudaStreamWaitEvent(cudaStreamPerThread, done, 0);
  }
  void Transfer(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    Await();
    Finish(cudaMemcpyAsync(to, from, bytes, kind, cudaStreamPerThread));
  }
  void Finish(cudaError_t error) {
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
    if (!Succeeded(error)) LogError("CUDA%d: %s", gpu_, cudaGetErrorString(error));
  }

  const int gpu_;
  std::mutex mutex_;
  std::set<cudaEvent_t> followed_;
};

DeviceMemory* Find(int gpu) {
  static std::mutex mutex;
  // Never destroyed: buffers may outlive what a static destructor would take away.
  static auto* memories = new std::map<int, std::unique_ptr<DeviceMemory>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<DeviceMemory>& memory = (*memories)[gpu];
  if (memory == nullptr) memory = std::make_unique<DeviceMemory>(gpu);
  return memory.get();
}

}  // namespace

KvMemory* MemoryOfGpu(int gpu) { return Find(gpu); }
void Follow(int gpu, cudaEvent_t done) { Find(gpu)->Follow(done); }
void Unfollow(int gpu, cudaEvent_t done) { Find(gpu)->Unfollow(done); }

}  // namespace kvarn::ggml_plugin
