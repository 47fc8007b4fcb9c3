// SPDX-License-Identifier: Apache-2.0
//
// Microseconds of the parts of a decode step over planes on the device, by rows in the cache, from
// CUDA graphs: the plan of a step, and write and attention of a layer.
//   cuda_attention_bench
#include "cuda_plane_layer.h"

namespace {

using namespace kvarn_bench;

constexpr int kRuns = 9;
constexpr int kLayers = 32;  // calls in a graph
constexpr int kPad = 256;    // hosts look at rows in steps of so many

struct Figures {
  float plan, write, attention;
};

Figures Measure(int n_streams, int64_t n_rows) {
  Layer layer(n_streams, n_streams * kChunk);
  layer.Fill(n_rows);
  layer.Save();
  const int64_t padded = (n_rows + 1 + kPad - 1) / kPad * kPad;
  kvarn_attention call = layer.Attention(padded);
  std::vector<uint16_t> mask(static_cast<size_t>(n_streams * padded), 0xFC00);
  for (int s = 0; s < n_streams; ++s) {
    std::fill_n(mask.begin() + s * padded, n_rows + 1, uint16_t{0});
  }
  const auto heads = static_cast<size_t>(call.n_heads);
  call.mask = DeviceCopy(mask);
  call.mask_heads = 1;
  call.mask_streams = n_streams;
  call.mask_token_stride = call.mask_stream_stride = 2 * static_cast<size_t>(padded);
  call.query = DeviceCopy(std::vector<float>(static_cast<size_t>(n_streams) * heads * kDim, 0.1F));
  call.out = DeviceCopy(std::vector<float>(static_cast<size_t>(n_streams) * heads * kDim));
  call.query_head_stride = call.out_head_stride = kDim * sizeof(float);
  call.query_token_stride = call.out_token_stride = heads * call.query_head_stride;
  call.query_stream_stride = call.out_stream_stride = call.query_token_stride;
  void* workspace = nullptr;
  const size_t bytes = kvarn_cuda_attention_workspace_bytes(&call);
  if (bytes == 0) Check(KVARN_ERROR_UNSUPPORTED);
  Check(cudaMalloc(&workspace, bytes));
  int64_t* rows = layer.Rows(n_rows, 1);
  const auto repeat = [&](auto enqueue) {
    const auto all = [&](cudaStream_t stream) {
      for (int i = 0; i < kLayers; ++i) enqueue(stream);
    };
    return MedianUs(kRuns, all, [&] { layer.Restore(); }) / kLayers;
  };
  Figures f = {};
  f.write = repeat([&](cudaStream_t stream) { layer.Write(rows, 1, true, stream); });
  f.plan = repeat(
      [&](cudaStream_t s) { Check(kvarn_cuda_attention_plan(&call, nullptr, workspace, s)); });
  f.attention = repeat(
      [&](cudaStream_t s) { Check(kvarn_cuda_attention_run(&call, nullptr, workspace, s)); });
  cudaFree(rows);
  cudaFree(workspace);
  cudaFree(const_cast<uint16_t*>(call.mask));
  cudaFree(const_cast<float*>(call.query));
  cudaFree(call.out);
  return f;
}

}  // namespace

int main() {
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    std::printf("skipped: no CUDA device on this machine\n");
    return 77;
  }
  std::printf("%s, D = %d, %d KV heads, %d query heads, k4v2, warm L2, median of %d runs of %d\n",
              properties.name, kDim, kHeads, kHeads * kQueriesPerHead, kRuns, kLayers);
  std::printf("%8s %10s %10s %10s %12s\n", "streams", "rows", "us plan", "us write",
              "us attention");
  for (const int n_streams : {1, 8}) {
    for (const int64_t n_rows : {100, 500, 1000, 2000, 4000, 8000, 16000, 32000}) {
      const Figures f = Measure(n_streams, n_rows);
      std::printf("%8d %10lld %10.1f %10.1f %12.1f\n", n_streams, static_cast<long long>(n_rows),
                  f.plan, f.write, f.attention);
    }
  }
  return 0;
}
