// SPDX-License-Identifier: Apache-2.0
//
// Feeds random steps of many sequences (single rows, chunks, rows that are written again) to the
// cache on the GPU and compares records, rings, sinks and sealed_rows with what the CPU makes of
// the same rows, byte for byte. One self-contained program: built anywhere, run on a machine with a
// GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "append_device.h"

namespace {

using kvarn_cuda_test::AppendShape;
using kvarn_cuda_test::Check;
using kvarn_cuda_test::DeviceCache;
using kvarn_cuda_test::HostRecord;
using kvarn_cuda_test::HostRow;
using kvarn_cuda_test::HostSequence;
using kvarn_cuda_test::KeptRow;
using kvarn_cuda_test::MakeHostRow;
using kvarn_cuda_test::Step;

constexpr int kSkip = 77;  // ctest: skipped
constexpr int kSteps = 24;
constexpr int kMaxRows = 700;

void AddRow(const HostRow& row, Step* step) {
  step->keys.insert(step->keys.end(), row.key.begin(), row.key.end());
  step->values.insert(step->values.end(), row.value.begin(), row.value.end());
  step->queries.insert(step->queries.end(), row.query.begin(), row.query.end());
}

// Rows by which a sequence may fall: the ring still reaches every tile that is sealed again.
int RollBackLimit(const AppendShape& shape) {
  return shape.ring_rows - shape.tail_rows - 2 * shape.Group();
}

Step RandomStep(const AppendShape& shape, std::mt19937* random,
                std::vector<HostSequence>* sequences) {
  Step step;
  step.row_begin.push_back(0);
  int left = kMaxRows;
  for (HostSequence& rows : *sequences) {
    const unsigned kind = (*random)() % 8;
    if (kind == 0 && RollBackLimit(shape) > 0) {
      const size_t back = (*random)() % static_cast<unsigned>(RollBackLimit(shape) + 1);
      rows.resize(rows.size() - std::min(back, rows.size()));
    }
    int count = kind < 5 ? static_cast<int>((*random)() % 6) : kind == 5 ? 300 : shape.Group() - 1;
    count = std::min(count, left);
    left -= count;
    for (int i = 0; i < count; ++i) {
      rows.push_back(MakeHostRow(shape, random));
      AddRow(rows.back(), &step);
    }
    step.row_begin.push_back(step.row_begin.back() + count);
    step.lengths.push_back(static_cast<int32_t>(rows.size()));
  }
  return step;
}

struct Differences {
  int records = 0, ring = 0, sink = 0, sealed = 0;
  int Total() const { return records + ring + sink + sealed; }
};

// A ring keeps the last tiles that were begun; `longest` is how long the sequence has ever been.
void CompareRows(const AppendShape& shape, const HostSequence& rows, int longest, int sequence,
                 bool key, const std::vector<uint16_t>& exact, const DeviceCache& cache,
                 Differences* found) {
  const int dim = key ? shape.KeyDim() : shape.ValueDim();
  const int length = static_cast<int>(rows.size());
  const int first_tile =
      std::max((longest - 1) / shape.Group() - shape.ring_rows / shape.Group() + 1, 0);
  const auto differs = [&](int64_t row, int position, int head) {
    const HostRow& host = rows[static_cast<size_t>(position)];
    const auto kept = KeptRow(key ? host.key : host.value, head, dim, shape.dtype);
    const auto at = static_cast<size_t>((row * shape.n_kv_heads + head) * dim);
    return !std::equal(kept.begin(), kept.end(), exact.begin() + static_cast<ptrdiff_t>(at));
  };
  for (int head = 0; head < shape.n_kv_heads; ++head) {
    for (int x = first_tile * shape.Group(); x < length; ++x) {
      found->ring += differs(cache.RingRow(sequence, x), x, head) ? 1 : 0;
    }
    for (int x = 0; shape.sink && x < std::min(length, shape.Group()); ++x) {
      found->sink += differs(cache.SinkRow(sequence) + x, x, head) ? 1 : 0;
    }
  }
}

void CompareRecords(const AppendShape& shape, const HostSequence& rows, int sequence, bool key,
                    const std::vector<uint8_t>& records, const DeviceCache& cache,
                    Differences* found) {
  const int tiles = shape.SealedTiles(static_cast<int>(rows.size()));
  for (int tile = 0; tile < tiles; ++tile) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      const std::vector<uint8_t> expected = HostRecord(shape, rows, tile, head, key);
      const auto at = static_cast<size_t>(cache.BlockOf(sequence, tile) * shape.n_kv_heads + head) *
                      expected.size();
      if (std::memcmp(expected.data(), records.data() + at, expected.size()) != 0) {
        found->records += 1;
      }
    }
  }
}

void Compare(const AppendShape& shape, const std::vector<HostSequence>& sequences,
             const std::vector<int>& longest, DeviceCache* cache, Differences* found) {
  const std::vector<int32_t> sealed = cache->SealedRows();
  for (const bool key : {true, false}) {
    const std::vector<uint8_t> records = cache->Records(key);
    const std::vector<uint16_t> exact = cache->Exact(key);
    for (int i = 0; i < shape.n_sequences; ++i) {
      const HostSequence& rows = sequences[static_cast<size_t>(i)];
      const int tiles = shape.SealedTiles(static_cast<int>(rows.size()));
      if (sealed[static_cast<size_t>(i)] != tiles * shape.Group()) found->sealed += 1;
      CompareRecords(shape, rows, i, key, records, *cache, found);
      CompareRows(shape, rows, longest[static_cast<size_t>(i)], i, key, exact, *cache, found);
    }
  }
}

int RunCase(const char* name, const AppendShape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<HostSequence> sequences(static_cast<size_t>(shape.n_sequences));
  DeviceCache cache(shape, kMaxRows, 1 + 300 * kSteps / shape.Group());
  std::vector<int> longest(sequences.size(), 0);
  Differences found;
  int step = 0;
  for (; step < kSteps && found.Total() == 0; ++step) {
    cache.Upload(RandomStep(shape, &random, &sequences));
    for (size_t i = 0; i < sequences.size(); ++i) {
      longest[i] = std::max(longest[i], static_cast<int>(sequences[i].size()));
    }
    const kvarn_status status = cache.Append(nullptr);
    if (status != KVARN_OK) {
      std::printf("FAILED %s: %s\n", name, kvarn_status_text(status));
      return 1;
    }
    Check(cudaDeviceSynchronize(), "append");
    if (step % 6 == 5) Compare(shape, sequences, longest, &cache, &found);
  }
  if (found.Total() == 0) return 0;
  std::printf("FAILED %s at step %d: %d records, %d ring rows, %d sink rows, %d sealed_rows\n",
              name, step, found.records, found.ring, found.sink, found.sealed);
  return 1;
}

// Sequences 0 and 2 begin with blocks that 1 seals in this very step.
int RunSharedPrefix(AppendShape shape) {
  constexpr int kShared = 2;
  shape.n_sequences = 3;
  std::mt19937 random(7);
  std::vector<HostSequence> sequences(3);
  DeviceCache cache(shape, kMaxRows, 8);
  const int shared_rows = kShared * shape.Group();
  for (int i = 0; i < shared_rows + 30; ++i) sequences[1].push_back(MakeHostRow(shape, &random));
  Step step;
  step.row_begin.push_back(0);
  for (size_t i = 0; i < 3; ++i) {
    HostSequence& rows = sequences[i];
    size_t begin = 0;
    if (i != 1) {
      cache.Share(static_cast<int>(i), 1, kShared);
      rows.assign(sequences[1].begin(), sequences[1].begin() + shared_rows);
      begin = rows.size();
      while (rows.size() < begin + static_cast<size_t>(shape.Group()) + 9 * i) {
        rows.push_back(MakeHostRow(shape, &random));
      }
    }
    for (size_t x = begin; x < rows.size(); ++x) AddRow(rows[x], &step);
    step.row_begin.push_back(step.row_begin.back() + static_cast<int32_t>(rows.size() - begin));
    step.lengths.push_back(static_cast<int32_t>(rows.size()));
  }
  cache.Upload(step);
  if (cache.Append(nullptr) != KVARN_OK) return 1;
  Check(cudaDeviceSynchronize(), "append");
  Differences found;
  for (const bool key : {true, false}) {
    const std::vector<uint8_t> records = cache.Records(key);
    for (int i = 0; i < shape.n_sequences; ++i) {
      CompareRecords(shape, sequences[static_cast<size_t>(i)], i, key, records, cache, &found);
    }
  }
  if (found.Total() == 0) return 0;
  std::printf("FAILED shared prefix: %d records\n", found.Total());
  return 1;
}

AppendShape Shape(int key_bits, int value_bits, int group, int key_dim, int value_dim) {
  AppendShape s = {};
  s.key = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, key_bits, group, key_dim};
  s.value = {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, value_bits, group, value_dim};
  s.dtype = KVARN_FP16;
  s.n_sequences = 5;
  s.n_kv_heads = 2;
  s.heads_per_kv = 3;
  s.ring_rows = 3 * group;
  s.sink = true;
  s.queries = true;
  s.balance_tile = 1;
  return s;
}

}  // namespace

int main() {
  if (!kvarn_cuda_test::HasDevice()) {
    std::printf("skipped: no CUDA device on this machine\n");
    return kSkip;
  }
  int failed = 0;
  int cases = 0;
  const auto run = [&](const char* name, const AppendShape& shape) {
    failed += RunCase(name, shape, static_cast<unsigned>(100 + cases));
    cases += 1;
  };
  AppendShape s = Shape(4, 2, 128, 128, 128);
  run("k4v2", s);
  s.dtype = KVARN_BF16;
  run("bf16", s);
  failed += RunSharedPrefix(Shape(4, 2, 64, 128, 128));
  cases += 1;
  s = Shape(2, 4, 64, 80, 112);
  run("group 64, Dk != Dv", s);
  s.tail_rows = 40;
  s.ring_rows = 5 * 64;
  run("tail of 40 rows", s);
  s = Shape(8, 8, 128, 64, 64);
  s.ring_rows = 256;
  run("ring without room to fall back", s);
  s = Shape(3, 3, 64, 96, 96);
  s.queries = false;
  run("balance from keys alone", s);
  s.queries = true;
  s.balance_tile = 0;
  s.sink = false;
  run("no sink", s);
  s = Shape(4, 4, 128, 256, 192);
  s.n_kv_heads = 1;
  s.heads_per_kv = 16;
  run("16 query heads a KV head", s);
  s.n_sequences = 1;
  run("one sequence", s);
  std::printf("%d passed, %d failed\n", cases - failed, failed);
  return failed == 0 ? 0 : 1;
}
