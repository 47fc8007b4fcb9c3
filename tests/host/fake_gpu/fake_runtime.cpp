// SPDX-License-Identifier: Apache-2.0
//
// The CUDA runtime of a GPU that is played by the host: what is enqueued is done at once.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "rest.h"

namespace {
// Before each block lies its size, behind it what nobody may change.
constexpr size_t kEdge = 256;
constexpr char kCanary = 0x5A;

// Which stream each event was recorded on last.
struct Events {
  std::mutex mutex;
  std::map<cudaEvent_t, cudaStream_t> recorded;
};
Events& AllEvents() {
  static auto* events = new Events;
  return *events;
}
}  // namespace

extern "C" {

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 9;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  auto* block =
      static_cast<char*>(std::aligned_alloc(kEdge, (bytes + 3 * kEdge - 1) / kEdge * kEdge));
  if (block == nullptr) return cudaErrorMemoryAllocation;
  std::memcpy(block, &bytes, sizeof(bytes));
  std::memset(block + kEdge + bytes, kCanary, kEdge);
  *memory = block + kEdge;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const char* end = static_cast<char*>(memory);
  size_t bytes = 0;
  std::memcpy(&bytes, end - kEdge, sizeof(bytes));
  end += bytes;
  for (size_t i = 0; i < kEdge; ++i) {
    if (end[i] == kCanary) continue;
    std::fprintf(stderr, "a kernel wrote beyond a block of %zu bytes\n", bytes);
    std::abort();
  }
  std::free(static_cast<char*>(memory) - kEdge);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t) {
  for (size_t i = 0; i < height; ++i) {
    std::memcpy(static_cast<char*>(to) + i * to_pitch,
                static_cast<const char*>(from) + i * from_pitch, width);
  }
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  fake_gpu::StreamEnds(stream);
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned) {
  const std::lock_guard<std::mutex> lock(AllEvents().mutex);
  fake_gpu::RestIsAwaited(AllEvents().recorded[event]);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<char*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(AllEvents().mutex);
  AllEvents().recorded[event] = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaGraphCreate(cudaGraph_t*, unsigned) { return cudaErrorStreamCaptureUnsupported; }
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t) {
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) {
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "fake"; }

}  // extern "C"
