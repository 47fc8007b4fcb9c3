// SPDX-License-Identifier: Apache-2.0
//
// What the plug-in calls of the CUDA runtime, for a GPU that is played by the host.
#ifndef KVARN_TESTS_HOST_FAKE_GPU_CUDA_RUNTIME_API_H_
#define KVARN_TESTS_HOST_FAKE_GPU_CUDA_RUNTIME_API_H_

#include <cstddef>

extern "C" {

typedef struct FakeStream* cudaStream_t;
typedef struct FakeEvent* cudaEvent_t;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorStreamCaptureUnsupported = 900
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75 };
enum : unsigned { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
#define cudaStreamPerThread (static_cast<cudaStream_t>(nullptr))

cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
// Recording is refused.
typedef struct FakeGraph* cudaGraph_t;
typedef struct FakeGraphExec* cudaGraphExec_t;
typedef struct FakeGraphNode* cudaGraphNode_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags);
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* from, size_t n);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
struct cudaGraphExecUpdateResultInfo {
  int result;
};
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);

}  // extern "C"

#endif  // KVARN_TESTS_HOST_FAKE_GPU_CUDA_RUNTIME_API_H_
