// SPDX-License-Identifier: Apache-2.0
//
// Tiles a second of the CUDA encoder, inputs streamed from device memory (the rows of one run are
// larger than the L2 cache).
//   cuda_encode_bench [tiles, default 65536]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "kvarn/kvarn.h"
#include "kvarn/kvarn_cuda.h"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// Median milliseconds of nine runs.
float TimeEncode(const kvarn_format& format, const kvarn_cuda_tile* tiles, int n) {
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  Check(cudaEventCreate(&start));
  Check(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int run = 0; run < 12; ++run) {
    Check(cudaEventRecord(start, nullptr));
    if (kvarn_cuda_encode(&format, KVARN_FP16, tiles, n, nullptr, nullptr) != KVARN_OK)
      std::exit(1);
    Check(cudaEventRecord(stop, nullptr));
    Check(cudaEventSynchronize(stop));
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, start, stop));
    if (run >= 3) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 65536;
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    std::printf("skipped: no CUDA device on this machine\n");
    return 77;
  }
  std::printf("%s, %d tiles a run, median of 9 runs\n", properties.name, n);
  std::printf("%-6s %4s %4s %5s %12s %10s %8s\n", "role", "bits", "dim", "group", "us a tile/SM",
              "M tiles/s", "GB/s in");
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const int dim : {64, 128, 256}) {
    const size_t elements = static_cast<size_t>(128) * static_cast<size_t>(dim);
    std::vector<uint16_t> host(elements * 64);
    for (uint16_t& x : host) {
      const auto half = static_cast<_Float16>(normal(random));
      std::memcpy(&x, &half, sizeof(x));
    }
    uint16_t* rows = nullptr;
    uint8_t* records = nullptr;
    kvarn_cuda_tile* tiles = nullptr;
    Check(cudaMalloc(reinterpret_cast<void**>(&rows), elements * 2 * static_cast<size_t>(n)));
    for (int i = 0; i < n; i += 64) {
      const size_t count = static_cast<size_t>(std::min(64, n - i)) * elements * 2;
      Check(cudaMemcpy(rows + static_cast<size_t>(i) * elements, host.data(), count,
                       cudaMemcpyHostToDevice));
    }
    Check(cudaMalloc(reinterpret_cast<void**>(&tiles),
                     sizeof(kvarn_cuda_tile) * static_cast<size_t>(n)));
    for (const kvarn_role role : {KVARN_KEY, KVARN_VALUE}) {
      for (const int bits : {2, 4}) {
        const kvarn_format format = {role, KVARN_BALANCED, KVARN_ORDER_CUDA, bits, 128, dim};
        const size_t record = kvarn_record_bytes(&format);
        Check(cudaMalloc(reinterpret_cast<void**>(&records), record * static_cast<size_t>(n)));
        std::vector<kvarn_cuda_tile> jobs(static_cast<size_t>(n));
        for (size_t i = 0; i < jobs.size(); ++i) {
          jobs[i].rows = rows + i * elements;
          jobs[i].row_stride = dim * 2;
          jobs[i].record = records + i * record;
          jobs[i].written[0] = jobs[i].written[1] = ~0ULL;
        }
        Check(cudaMemcpy(tiles, jobs.data(), sizeof(kvarn_cuda_tile) * jobs.size(),
                         cudaMemcpyHostToDevice));
        const float ms = TimeEncode(format, tiles, n);
        const double rate = n / (static_cast<double>(ms) * 1e-3);
        std::printf("%-6s %4d %4d %5d %12.2f %10.2f %8.0f\n", role == KVARN_KEY ? "key" : "value",
                    bits, dim, 128, properties.multiProcessorCount / rate * 1e6, rate * 1e-6,
                    rate * static_cast<double>(elements) * 2e-9);
        Check(cudaFree(records));
      }
    }
    Check(cudaFree(rows));
    Check(cudaFree(tiles));
  }
  return 0;
}
