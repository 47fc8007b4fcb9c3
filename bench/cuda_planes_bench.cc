// SPDX-License-Identifier: Apache-2.0
//
// Microseconds to write the K and V rows of a layer into planes on the device, from CUDA graphs.
//   cuda_planes_bench
#include "cuda_plane_layer.h"

namespace {

using namespace kvarn_bench;

constexpr int kRuns = 7;
constexpr int64_t kPrompt = 4096;  // rows in the cache before what is measured

// Median microseconds a call of `calls` calls in a graph, the first of them at row `begin`.
float TimeCalls(Layer* layer, int64_t begin, int64_t count, int calls, bool workspace) {
  std::vector<int64_t*> rows;
  for (int i = 0; i < calls; ++i) rows.push_back(layer->Rows(begin + i * count, count));
  const auto enqueue = [&](cudaStream_t stream) {
    for (const int64_t* rows_of_call : rows) layer->Write(rows_of_call, count, workspace, stream);
  };
  const float us = MedianUs(kRuns, enqueue, [&] { layer->Restore(); });
  for (int64_t* rows_of_call : rows) cudaFree(rows_of_call);
  return us / static_cast<float>(calls);
}

struct Case {
  const char* name;
  int n_streams;
  int64_t begin, count;
  int calls;
  bool full;  // after a prompt, else into empty planes
};

}  // namespace

int main() {
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    std::printf("skipped: no CUDA device on this machine\n");
    return 77;
  }
  std::printf("%s, K and V of a layer, D = %d, %d KV heads, k4v2, median of %d runs\n",
              properties.name, kDim, kHeads, kRuns);
  std::printf("%-44s %14s %14s\n", "", "us a call", "no workspace");
  const Case cases[] = {
      {"1 row", 1, kPrompt, 1, 64, true},
      {"1 row, 8 streams", 8, kPrompt, 1, 64, true},
      {"1 row that seals a tile", 1, kPrompt + kGroup - 1, 1, 1, true},
      {"512 rows at 4096", 1, kPrompt, 512, 4, true},
      {"512 rows at 4100", 1, kPrompt + 4, 512, 4, true},
      {"512 rows at 0, empty planes", 1, 0, 512, 1, false},
      {"512 rows at 0, planes of an earlier request", 1, 0, 512, 1, true},
      {"2048 rows at 4096", 1, kPrompt, 2048, 2, true},
      {"8 streams of 64 rows", 8, kPrompt, 64, 4, true},
  };
  for (const Case& c : cases) {
    Layer layer(c.n_streams, c.n_streams * static_cast<int>(std::max<int64_t>(c.count, kChunk)));
    layer.Fill(c.begin > 0 ? c.begin : kPrompt);
    if (!c.full) layer.Clear();
    layer.Save();
    const float with = TimeCalls(&layer, c.begin, c.count, c.calls, true);
    const float without = TimeCalls(&layer, c.begin, c.count, c.calls, false);
    std::printf("%-44s %14.1f %14.1f\n", c.name, with, without);
  }
  return 0;
}
