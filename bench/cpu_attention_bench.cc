// SPDX-License-Identifier: Apache-2.0
//
// Attention on packed planes with one thread: nanoseconds for each cached token and KV head, bytes
// of the planes read a second, and which share of this machine's limits (cpu_limits.h) that is: of
// its reads from memory, and of its integer products. Caches are as warm as the size of the planes
// leaves them: at depth 1048576 they hold little of them.
//   cpu_attention_bench --benchmark_filter=k4v2
//   cpu_attention_bench --isa=avx2        force a level: scalar, avx2, avx512, neon
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cpu_limits.h"
#include "kvarn/kvarn.h"

namespace {

struct AlignedFree {
  void operator()(void* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<uint8_t, AlignedFree>;

Block Allocate(size_t bytes) {
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  return Block(static_cast<uint8_t*>(memory));
}

struct PlaneDestroy {
  void operator()(kvarn_plane* plane) const { kvarn_plane_destroy(plane); }
};

// One plane filled with random rows.
struct Plane {
  std::unique_ptr<kvarn_plane, PlaneDestroy> plane;
  Block memory;
  kvarn_plane_config config = {};
  size_t bytes = 0;

  Plane(kvarn_role role, int bits, int head_dim, int64_t n_rows) {
    config.format = {role, KVARN_BALANCED, KVARN_ORDER_CPU, bits, 128, head_dim};
    config.n_rows = n_rows;
    config.tail_rows = 128;
    config.sink_tiles = 1;
    kvarn_plane* made = nullptr;
    if (kvarn_plane_create(&config, &made) != KVARN_OK) std::abort();
    plane.reset(made);
    bytes = kvarn_plane_bytes(made);
    memory = Allocate(bytes);
    kvarn_plane_reset(made, memory.get());
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(head_dim));
    for (int64_t i = 0; i < n_rows; ++i) {
      for (float& x : row) x = normal(random);
      kvarn_plane_write(made, memory.get(), i, row.data(), nullptr, 0, 0);
    }
  }
};

// What an iteration did: all rows of `planes` planes of K and of V met `query_rows` query rows.
void Report(benchmark::State& state, const Plane& keys, const Plane& values, int query_rows,
            int64_t planes) {
  using benchmark::Counter;
  const auto iterations = static_cast<double>(state.iterations());
  const auto rows = static_cast<double>(keys.config.n_rows * planes) * iterations;
  state.counters["token-head"] = Counter(rows, Counter::kIsRate | Counter::kInvert);
  const double bytes =
      static_cast<double>(keys.bytes + values.bytes) * static_cast<double>(planes) * iterations;
  state.counters["bytes"] = Counter(bytes, Counter::kIsRate, Counter::kIs1000);
  state.counters["of-reads"] = Counter(bytes / kvarn_bench::Limits().read_bytes, Counter::kIsRate);
  const double peak = kvarn_bench::Limits().int8_macs;
  if (peak == 0) return;
  // Weights have two parts of 8 bits, and codes of 3 bits are two planes.
  double macs = 0;
  for (const kvarn_format& format : {keys.config.format, values.config.format}) {
    macs += 2 * query_rows * format.head_dim * (format.bits == 3 ? 2 : 1);
  }
  state.counters["of-products"] = Counter(rows * macs / peak, Counter::kIsRate);
}

void Attention(benchmark::State& state, int key_bits, int value_bits) {
  const auto dim = static_cast<int>(state.range(0));
  const auto heads = static_cast<int>(state.range(1));
  const int64_t rows = state.range(2);
  const auto tokens = static_cast<int>(state.range(3));
  const Plane keys(KVARN_KEY, key_bits, dim, rows);
  const Plane values(KVARN_VALUE, value_bits, dim, rows);
  const auto width = static_cast<size_t>(dim);
  std::vector<float> query(width * static_cast<size_t>(heads * tokens), 0.3F);
  std::vector<float> out(query.size());
  kvarn_attention call = {};
  call.key_plane = keys.plane.get();
  call.value_plane = values.plane.get();
  call.keys = keys.memory.get();
  call.values = values.memory.get();
  call.n_streams = call.n_kv_heads = 1;
  call.n_tokens = tokens;
  call.n_heads = heads;
  call.n_rows = rows;
  call.query = query.data();
  call.out = out.data();
  call.query_head_stride = call.out_head_stride = width * sizeof(float);
  call.query_token_stride = call.out_token_stride =
      call.query_head_stride * static_cast<size_t>(heads);
  call.scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const Block workspace = Allocate(kvarn_attention_workspace_bytes(&call, 1));
  for (auto _ : state) {
    if (kvarn_attention_begin(&call, workspace.get(), 1) != KVARN_OK) std::abort();
    kvarn_attention_run(&call, workspace.get(), 0, 1);
    benchmark::ClobberMemory();
  }
  Report(state, keys, values, heads * tokens, 1);
}

// A token of a model: one call for each of its layers, each with planes of its own, so that records
// come from memory.
void Model(benchmark::State& state, int key_bits, int value_bits) {
  const auto dim = static_cast<int>(state.range(0));
  const auto gqa = static_cast<int>(state.range(1));
  const auto kv_heads = static_cast<int>(state.range(2));
  const auto layers = static_cast<int>(state.range(3));
  const int64_t rows = state.range(4);
  const Plane keys(KVARN_KEY, key_bits, dim, rows);
  const Plane values(KVARN_VALUE, value_bits, dim, rows);
  const auto heads = static_cast<size_t>(kv_heads);
  const auto width = static_cast<size_t>(dim);
  const size_t key_stride = (keys.bytes + 63) / 64 * 64;
  const size_t value_stride = (values.bytes + 63) / 64 * 64;
  std::vector<Block> caches;  // K planes of the heads of a layer, then V planes
  for (int layer = 0; layer < layers; ++layer) {
    caches.push_back(Allocate(heads * (key_stride + value_stride)));
    uint8_t* to = caches.back().get();
    for (size_t head = 0; head < heads; ++head) {
      std::memcpy(to + head * key_stride, keys.memory.get(), keys.bytes);
      std::memcpy(to + heads * key_stride + head * value_stride, values.memory.get(), values.bytes);
    }
  }
  std::vector<float> query(width * heads * static_cast<size_t>(gqa), 0.3F);
  std::vector<float> out(query.size());
  kvarn_attention call = {};
  call.key_plane = keys.plane.get();
  call.value_plane = values.plane.get();
  call.key_head_stride = key_stride;
  call.value_head_stride = value_stride;
  call.n_streams = call.n_tokens = 1;
  call.n_kv_heads = kv_heads;
  call.n_heads = kv_heads * gqa;
  call.n_rows = rows;
  call.query = query.data();
  call.out = out.data();
  call.query_head_stride = call.out_head_stride = width * sizeof(float);
  call.query_token_stride = call.out_token_stride = out.size() * sizeof(float);
  call.scale = 1.0F / std::sqrt(static_cast<float>(dim));
  call.keys = call.values = caches[0].get();
  const Block workspace = Allocate(kvarn_attention_workspace_bytes(&call, 1));
  for (auto _ : state) {
    for (const Block& cache : caches) {
      call.keys = cache.get();
      call.values = cache.get() + heads * key_stride;
      if (kvarn_attention_begin(&call, workspace.get(), 1) != KVARN_OK) std::abort();
      kvarn_attention_run(&call, workspace.get(), 0, 1);
      benchmark::ClobberMemory();
    }
  }
  Report(state, keys, values, gqa, int64_t{layers} * kv_heads);
}

void Grid(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dim", "gqa", "depth", "tokens"});
  for (const int dim : {64, 128, 256}) {
    for (const int gqa : {1, 3, 4, 8}) bench->Args({dim, gqa, 8192, 1});
  }
  for (const int depth : {1024, 32768, 131072, 1 << 20}) bench->Args({64, 3, depth, 1});
  for (const int tokens : {2, 4, 8, 128, 512}) bench->Args({64, 3, 8192, tokens});
}

BENCHMARK_CAPTURE(Attention, k4v2, 4, 2)->Apply(Grid);
BENCHMARK_CAPTURE(Attention, k2v2, 2, 2)->Apply(Grid);
BENCHMARK_CAPTURE(Attention, k4v4, 4, 4)->Apply(Grid);
BENCHMARK_CAPTURE(Attention, k8v8, 8, 8)->Args({64, 3, 8192, 1})->Args({128, 4, 8192, 1});
BENCHMARK_CAPTURE(Attention, k3v3, 3, 3)->Args({64, 3, 8192, 1})->Args({128, 4, 8192, 1});

void Models(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dim", "gqa", "kv_heads", "layers", "depth"});
  bench->Args({64, 3, 3, 30, 8192})->Args({128, 4, 8, 16, 8192});
}
BENCHMARK_CAPTURE(Model, k4v2, 4, 2)->Apply(Models);
BENCHMARK_CAPTURE(Model, k2v2, 2, 2)->Apply(Models);

}  // namespace
