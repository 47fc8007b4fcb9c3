// SPDX-License-Identifier: Apache-2.0
//
// The planes of one layer on a GPU, filled with random rows, and timing: for the benches of planes.
#ifndef KVARN_BENCH_CUDA_PLANE_LAYER_H_
#define KVARN_BENCH_CUDA_PLANE_LAYER_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kvarn/kvarn.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn_bench {

constexpr int kHeads = 8;
constexpr int kQueriesPerHead = 4;
constexpr int kDim = 128;
constexpr int kGroup = 128;
constexpr int64_t kPlaneRows = 33792;
constexpr int kChunk = 512;

inline void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}
inline void Check(kvarn_status status) {
  if (status == KVARN_OK) return;
  std::printf("kvarn: %s\n", kvarn_status_text(status));
  std::exit(1);
}

template <typename T>
T* DeviceCopy(const std::vector<T>& host) {
  void* data = nullptr;
  Check(cudaMalloc(&data, host.size() * sizeof(T)));
  Check(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<T*>(data);
}

// The planes of one layer, and rows that are written into them.
class Layer {
 public:
  Layer(int n_streams, int most_rows) : n_streams_(n_streams) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto rows = static_cast<size_t>(most_rows);
    std::vector<float> x(rows * kHeads * kDim);
    std::vector<float> query(rows * kHeads * kQueriesPerHead * kDim);
    for (float& value : x) value = normal(random);
    for (float& value : query) value = normal(random);
    float* device_x = DeviceCopy(x);
    for (const kvarn_role role : {KVARN_KEY, KVARN_VALUE}) {
      const kvarn_plane_config config = {
          {role, KVARN_BALANCED, KVARN_ORDER_CUDA, role == KVARN_KEY ? 4 : 2, kGroup, kDim},
          kPlaneRows,
          kGroup,
          1};
      kvarn_plane* plane = nullptr;
      Check(kvarn_plane_create(&config, &plane));
      kvarn_cuda_plane_write& write = writes_[role == KVARN_KEY ? 0 : 1];
      write.plane = plane;
      write.plane_stride = static_cast<int64_t>(kvarn_plane_bytes(plane));
      const size_t bytes = PlaneBytes(write);
      Check(cudaMalloc(&write.planes, bytes));
      Check(cudaMemset(write.planes, 0, bytes));
      Check(cudaMalloc(&saved_[role == KVARN_KEY ? 0 : 1], bytes));
      write.n_streams = n_streams;
      write.n_kv_heads = kHeads;
      write.x = device_x;
      write.head_stride = kDim * sizeof(float);
      write.row_stride = kHeads * write.head_stride;
      write.heads_per_kv = kQueriesPerHead;
      write.query_head_stride = write.head_stride;
      write.query_row_stride = kQueriesPerHead * write.row_stride;
    }
    writes_[0].query = DeviceCopy(query);
    writes_[0].n_rows = writes_[1].n_rows = most_rows;
    Check(cudaMalloc(&workspace_, kvarn_cuda_planes_write_workspace_bytes(writes_, 2)));
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  ~Layer() {
    cudaFree(const_cast<float*>(writes_[0].x));
    cudaFree(const_cast<float*>(writes_[0].query));
    cudaFree(workspace_);
    for (void* saved : saved_) cudaFree(saved);
    for (kvarn_cuda_plane_write& write : writes_) {
      cudaFree(write.planes);
      kvarn_plane_destroy(const_cast<kvarn_plane*>(write.plane));
    }
  }

  // Device memory with `count` rows from `begin` on of each stream.
  int64_t* Rows(int64_t begin, int64_t count) const {
    std::vector<int64_t> rows;
    for (int64_t s = 0; s < n_streams_; ++s) {
      for (int64_t i = 0; i < count; ++i) rows.push_back(s * kPlaneRows + begin + i);
    }
    return DeviceCopy(rows);
  }
  // `count` rows of each stream.
  void Write(const int64_t* rows, int64_t count, bool workspace, cudaStream_t stream) {
    for (kvarn_cuda_plane_write& write : writes_) {
      write.rows = rows;
      write.n_rows = static_cast<int32_t>(count) * n_streams_;
    }
    Check(kvarn_cuda_planes_write(writes_, 2, workspace ? workspace_ : nullptr, stream));
  }
  // Rows 0 to n - 1, as a prompt in chunks.
  void Fill(int64_t n) {
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t count = std::min<int64_t>(kChunk, n - begin);
      int64_t* rows = Rows(begin, count);
      Write(rows, count, true, nullptr);
      Check(cudaDeviceSynchronize());
      cudaFree(rows);
    }
  }
  void Clear() {
    for (const kvarn_cuda_plane_write& write : writes_) {
      Check(cudaMemset(write.planes, 0, PlaneBytes(write)));
    }
  }
  // Attention of one token of each stream over the first n_rows rows, but for query, out and mask.
  kvarn_attention Attention(int64_t n_rows) const {
    kvarn_attention call = {};
    call.key_plane = writes_[0].plane;
    call.value_plane = writes_[1].plane;
    call.keys = writes_[0].planes;
    call.values = writes_[1].planes;
    call.key_head_stride = static_cast<size_t>(writes_[0].plane_stride);
    call.value_head_stride = static_cast<size_t>(writes_[1].plane_stride);
    call.key_stream_stride = kHeads * call.key_head_stride;
    call.value_stream_stride = kHeads * call.value_head_stride;
    call.n_streams = n_streams_;
    call.n_tokens = 1;
    call.n_kv_heads = kHeads;
    call.n_heads = kHeads * kQueriesPerHead;
    call.n_rows = n_rows;
    call.scale = 0.0883883476F;
    return call;
  }
  void Save() { Copy(true); }
  void Restore() { Copy(false); }

 private:
  size_t PlaneBytes(const kvarn_cuda_plane_write& write) const {
    return static_cast<size_t>(write.plane_stride) * kHeads * static_cast<size_t>(n_streams_);
  }
  void Copy(bool save) {
    for (int i = 0; i < 2; ++i) {
      Check(cudaMemcpy(save ? saved_[i] : writes_[i].planes, save ? writes_[i].planes : saved_[i],
                       PlaneBytes(writes_[i]), cudaMemcpyDeviceToDevice));
    }
    Check(cudaDeviceSynchronize());
  }

  int n_streams_;
  kvarn_cuda_plane_write writes_[2] = {};
  void* saved_[2] = {};
  void* workspace_ = nullptr;
};

// Median microseconds of what `enqueue` puts on a stream, from a CUDA graph; `reset` runs before
// each run.
template <typename Enqueue, typename Reset>
float MedianUs(int runs, Enqueue enqueue, Reset reset) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Check(cudaEventCreate(&start));
  Check(cudaEventCreate(&stop));
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  enqueue(stream);
  Check(cudaStreamEndCapture(stream, &graph));
  Check(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<float> times;
  for (int run = 0; run < runs + 2; ++run) {
    reset();
    Check(cudaEventRecord(start, stream));
    Check(cudaGraphLaunch(exec, stream));
    Check(cudaEventRecord(stop, stream));
    Check(cudaEventSynchronize(stop));
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, start, stop));
    if (run >= 2) times.push_back(1000.0F * ms);
  }
  std::sort(times.begin(), times.end());
  Check(cudaEventDestroy(start));
  Check(cudaEventDestroy(stop));
  Check(cudaGraphExecDestroy(exec));
  Check(cudaGraphDestroy(graph));
  Check(cudaStreamDestroy(stream));
  return times[times.size() / 2];
}

}  // namespace kvarn_bench

#endif  // KVARN_BENCH_CUDA_PLANE_LAYER_H_
