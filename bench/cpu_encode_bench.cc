// SPDX-License-Identifier: Apache-2.0
//
// Encoding of tiles with one thread: rows to records (Encode), and rows written into a plane that
// seals its tiles (Write). Microseconds a tile; nanoseconds an element, and ticks of the time-stamp
// counter an element of the fastest tile. Repetitions report their minimum besides the usual
// statistics, for noisy machines; read the CPU time there.
//   cpu_encode_bench --benchmark_filter=k4 --benchmark_repetitions=20
//   cpu_encode_bench --isa=avx2           force a level: scalar, avx2, avx512, neon
#include <benchmark/benchmark.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "kvarn/kvarn.h"

namespace {

// Different tiles in turn, so that no branch learns the data; they fit the L2 cache.
constexpr int kTiles = 4;
constexpr double kNever = 1e300;

// Ticks at the nominal frequency of the processor, not its cycles; 0 where there is no counter.
double Ticks() {
#if defined(__x86_64__)
  return static_cast<double>(__rdtsc());
#else
  return 0.0;
#endif
}

double Smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

std::vector<float> RandomRows(int64_t rows, int head_dim) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(head_dim));
  for (float& value : x) value = normal(random);
  return x;
}

// `ticks`: of the fastest iteration, which no other work on the machine has lengthened.
void Report(benchmark::State& state, int head_dim, int group, double ticks) {
  const double elements = static_cast<double>(head_dim) * group;
  using benchmark::Counter;
  state.counters["ns/elem"] = Counter(elements * static_cast<double>(state.iterations()) * 1e-9,
                                      Counter::kIsRate | Counter::kInvert);
  state.counters["ticks/elem"] = Counter(ticks / elements);
}

// Rows of kTiles tiles to records of order `cpu`.
void Encode(benchmark::State& state, kvarn_role role, int bits) {
  const auto dim = static_cast<int>(state.range(0));
  const auto group = static_cast<int>(state.range(1));
  const kvarn_format format = {role, KVARN_BALANCED, KVARN_ORDER_CPU, bits, group, dim};
  const std::vector<float> rows = RandomRows(int64_t{kTiles} * group, dim);
  std::vector<int8_t> balance(static_cast<size_t>(dim));
  kvarn_balance(dim, rows.data(), group, nullptr, balance.data());
  std::vector<uint8_t> record(kvarn_record_bytes(&format));
  const size_t tile = static_cast<size_t>(group) * static_cast<size_t>(dim);
  size_t next = 0;
  double ticks = kNever;
  for (auto _ : state) {
    const double start = Ticks();
    const kvarn_status status =
        kvarn_encode(&format, rows.data() + next * tile, group, nullptr,
                     role == KVARN_KEY ? balance.data() : nullptr, record.data(), nullptr);
    if (status != KVARN_OK) std::abort();
    next = (next + 1) % kTiles;
    benchmark::ClobberMemory();
    ticks = std::min(ticks, Ticks() - start);
  }
  Report(state, dim, group, ticks);
}

struct PlaneDestroy {
  void operator()(kvarn_plane* plane) const { kvarn_plane_destroy(plane); }
};
struct MemoryFree {
  void operator()(void* memory) const { std::free(memory); }
};

// Group rows written one by one, one tile sealed. `rewrite`: round a ring of sealed tiles, so that
// each tile is reopened (decoded) first; else into empty tiles of a plane that is cleared when
// full.
void Write(benchmark::State& state, kvarn_role role, int bits, bool rewrite) {
  const auto dim = static_cast<int>(state.range(0));
  const auto group = static_cast<int>(state.range(1));
  const int64_t n_rows = int64_t{rewrite ? 8 : 64} * group;
  kvarn_plane_config config = {};
  config.format = {role, KVARN_BALANCED, KVARN_ORDER_CPU, bits, group, dim};
  config.n_rows = n_rows;
  config.tail_rows = group;
  config.sink_tiles = 0;
  kvarn_plane* made = nullptr;
  if (kvarn_plane_create(&config, &made) != KVARN_OK) std::abort();
  const std::unique_ptr<kvarn_plane, PlaneDestroy> plane(made);
  const size_t bytes = (kvarn_plane_bytes(made) + 63) / 64 * 64;
  const std::unique_ptr<void, MemoryFree> memory(std::aligned_alloc(64, bytes));
  kvarn_plane_reset(made, memory.get());
  const std::vector<float> rows = RandomRows(int64_t{kTiles} * group, dim);
  int64_t row = 0;
  const auto write_tile = [&] {
    for (int g = 0; g < group; ++g, ++row) {
      const float* x = rows.data() + row % (int64_t{kTiles} * group) * dim;
      if (kvarn_plane_write(made, memory.get(), row % n_rows, x, nullptr, 0, 0) != KVARN_OK) {
        std::abort();
      }
    }
  };
  for (int i = 0; i < 64; ++i) write_tile();
  double ticks = kNever;
  for (auto _ : state) {
    if (!rewrite && row % n_rows == 0) {  // the first tile of an empty plane seals none
      kvarn_plane_reset(made, memory.get());
      write_tile();
    }
    const double start = Ticks();
    write_tile();
    ticks = std::min(ticks, Ticks() - start);
  }
  Report(state, dim, group, ticks);
}

void Shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dim", "group"})->Unit(benchmark::kMicrosecond);
  bench->ComputeStatistics("min", Smallest);
  for (const int dim : {64, 128, 256}) {
    for (const int group : {64, 128}) bench->Args({dim, group});
  }
}

void OneShape(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dim", "group"})->Unit(benchmark::kMicrosecond);
  bench->ComputeStatistics("min", Smallest)->Args({128, 128});
}

BENCHMARK_CAPTURE(Encode, k2, KVARN_KEY, 2)->Apply(Shapes);
BENCHMARK_CAPTURE(Encode, k3, KVARN_KEY, 3)->Apply(Shapes);
BENCHMARK_CAPTURE(Encode, k4, KVARN_KEY, 4)->Apply(Shapes);
BENCHMARK_CAPTURE(Encode, k8, KVARN_KEY, 8)->Apply(Shapes);
BENCHMARK_CAPTURE(Encode, v2, KVARN_VALUE, 2)->Apply(Shapes);
BENCHMARK_CAPTURE(Encode, v3, KVARN_VALUE, 3)->Apply(Shapes);
BENCHMARK_CAPTURE(Encode, v4, KVARN_VALUE, 4)->Apply(Shapes);
BENCHMARK_CAPTURE(Encode, v8, KVARN_VALUE, 8)->Apply(Shapes);
BENCHMARK_CAPTURE(Write, k4, KVARN_KEY, 4, false)->Apply(OneShape);
BENCHMARK_CAPTURE(Write, v2, KVARN_VALUE, 2, false)->Apply(OneShape);
BENCHMARK_CAPTURE(Write, k4_reopen, KVARN_KEY, 4, true)->Apply(OneShape);
BENCHMARK_CAPTURE(Write, v2_reopen, KVARN_VALUE, 2, true)->Apply(OneShape);

}  // namespace
