// SPDX-License-Identifier: Apache-2.0
//
// Encodes random and hostile tiles on the GPU and on the CPU and compares the records byte for
// byte. One self-contained program: built anywhere, run on a machine with a GPU.
//   encode_conformance [tiles per case, default 40]
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "device_array.h"
#include "kvarn/kvarn.h"
#include "kvarn/kvarn_cuda.h"
#include "sixteen_bit.h"

namespace {

using kvarn_cuda_test::Check;
using kvarn_cuda_test::DeviceArray;
using kvarn_cuda_test::ToBits;
using kvarn_cuda_test::ToFloat;

constexpr int kSkip = 77;  // ctest: skipped

struct Case {
  kvarn_format format;
  kvarn_dtype dtype;
  int tiles;
  unsigned seed;
};

// Kind of data by tile index: plain, spread, biased, heavy-tailed, tiny, constant, zero, not
// finite.
void FillTile(int kind, const Case& c, std::mt19937* random, uint16_t* rows) {
  std::normal_distribution<float> normal;
  const int dim = c.format.head_dim;
  std::vector<float> spread(static_cast<size_t>(dim));
  for (float& s : spread) s = std::exp(normal(*random) * 0.8F);
  for (int g = 0; g < c.format.group; ++g) {
    const float token = std::exp(normal(*random) * 0.5F);
    for (int d = 0; d < dim; ++d) {
      float x = normal(*random);
      const float s = spread[static_cast<size_t>(d)];
      if (kind == 1) x = x * s * token;
      if (kind == 2) x = x + 40.0F * s;
      if (kind == 3) x = x * x * x * token * 20.0F;
      if (kind == 4) x = x * s * 0x1p-14F;
      if (kind == 5) x = s;
      if (kind == 6) x = (g + d) % 2 == 0 ? 0.0F : -0.0F;
      if (kind == 7 && g % 17 == 3 && d == g % dim) x = g % 2 == 0 ? NAN : INFINITY;
      if (kind == 7 && g % 19 == 4) x = x * 60000.0F;
      rows[g * dim + d] = ToBits(x, c.dtype);
    }
  }
}

int RunCase(const Case& c) {
  const auto group = static_cast<size_t>(c.format.group);
  const auto dim = static_cast<size_t>(c.format.head_dim);
  const size_t record = kvarn_record_bytes(&c.format);
  const auto n = static_cast<size_t>(c.tiles);
  const bool key = c.format.role == KVARN_KEY;
  std::mt19937 random(c.seed);
  std::vector<uint16_t> rows(n * group * dim);
  std::vector<int8_t> balance(n * dim);
  std::vector<kvarn_cuda_tile> tiles(n);
  DeviceArray<uint16_t> device_rows(rows.size());
  DeviceArray<int8_t> device_balance(balance.size());
  DeviceArray<uint8_t> device_records(n * record);
  DeviceArray<kvarn_cuda_tile> device_tiles(n);
  DeviceArray<kvarn_counts> device_counts(1);
  for (size_t i = 0; i < n; ++i) {
    FillTile(static_cast<int>(i % 8), c, &random, rows.data() + i * group * dim);
    for (size_t d = 0; d < dim; ++d) {
      balance[i * dim + d] = static_cast<int8_t>(static_cast<int>(random() % 65) - 32);
    }
    kvarn_cuda_tile& tile = tiles[i];
    tile.rows = device_rows.get() + i * group * dim;
    tile.row_stride = static_cast<int64_t>(dim * sizeof(uint16_t));
    tile.balance = key && i % 3 != 0 ? device_balance.get() + i * dim : nullptr;
    tile.record = device_records.get() + i * record;
    tile.written[0] = ~uint64_t{0};
    tile.written[1] = group > 64 ? ~uint64_t{0} : 0;
    if (i % 5 == 4) {  // partial tiles
      tile.written[0] = random() | 1U;
      tile.written[1] = group > 64 ? static_cast<uint64_t>(random()) << (random() % 32) : 0;
    }
  }
  device_rows.Upload(rows);
  device_balance.Upload(balance);
  device_tiles.Upload(tiles);
  Check(cudaMemset(device_records.get(), 0xEE, n * record), "memset");
  Check(cudaMemset(device_counts.get(), 0, sizeof(kvarn_counts)), "memset");
  const kvarn_status status = kvarn_cuda_encode(&c.format, c.dtype, device_tiles.get(), c.tiles,
                                                device_counts.get(), nullptr);
  if (status != KVARN_OK) {
    std::printf("kvarn_cuda_encode: %s\n", kvarn_status_text(status));
    return 1;
  }
  Check(cudaDeviceSynchronize(), "encode kernel");
  const std::vector<uint8_t> got = device_records.Download();
  const kvarn_counts got_counts = device_counts.Download()[0];

  kvarn_counts counts = {};
  std::vector<uint8_t> expected(record);
  int different = 0;
  for (size_t i = 0; i < n; ++i) {
    std::vector<float> values;
    std::vector<int32_t> position;
    for (size_t g = 0; g < group; ++g) {
      if (((tiles[i].written[g / 64] >> (g % 64)) & 1U) == 0) continue;
      position.push_back(static_cast<int32_t>(g));
      for (size_t d = 0; d < dim; ++d) {
        values.push_back(ToFloat(rows[(i * group + g) * dim + d], c.dtype));
      }
    }
    kvarn_encode(&c.format, values.data(), static_cast<int32_t>(position.size()), position.data(),
                 tiles[i].balance != nullptr ? balance.data() + i * dim : nullptr, expected.data(),
                 &counts);
    if (std::memcmp(expected.data(), got.data() + i * record, record) != 0) {
      size_t at = 0;
      while (expected[at] == got[i * record + at]) ++at;
      if (different++ == 0) {
        std::printf("tile %zu (kind %zu) differs first at byte %zu of %zu: %d, expected %d\n", i,
                    i % 8, at, record, got[i * record + at], expected[at]);
      }
    }
  }
  const bool same_counts = counts.rows_zeroed == got_counts.rows_zeroed &&
                           counts.values_saturated == got_counts.values_saturated;
  if (different != 0 || !same_counts) {
    std::printf(
        "FAILED role %d bits %d group %d dim %d dtype %d: %d of %d tiles differ; zeroed "
        "%llu/%llu saturated %llu/%llu\n",
        c.format.role, c.format.bits, c.format.group, c.format.head_dim, c.dtype, different,
        c.tiles, static_cast<unsigned long long>(got_counts.rows_zeroed),
        static_cast<unsigned long long>(counts.rows_zeroed),
        static_cast<unsigned long long>(got_counts.values_saturated),
        static_cast<unsigned long long>(counts.values_saturated));
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (!kvarn_cuda_test::HasDevice()) {
    std::printf("skipped: no CUDA device on this machine\n");
    return kSkip;
  }
  const int tiles = argc > 1 ? std::atoi(argv[1]) : 40;
  int failed = 0;
  int cases = 0;
  for (const kvarn_role role : {KVARN_KEY, KVARN_VALUE}) {
    for (const int bits : {2, 3, 4, 8}) {
      for (const int group : {64, 128}) {
        for (const int dim : {32, 40, 64, 72, 80, 96, 104, 112, 128, 160, 184, 192, 256}) {
          for (const kvarn_dtype dtype : {KVARN_FP16, KVARN_BF16}) {
            const Case c = {{role, KVARN_BALANCED, KVARN_ORDER_CUDA, bits, group, dim},
                            dtype,
                            tiles,
                            static_cast<unsigned>(1000 * bits + dim + group)};
            failed += RunCase(c);
            cases += 1;
          }
        }
      }
    }
  }
  std::printf("%d passed, %d failed (%d tiles each)\n", cases - failed, failed, tiles);
  return failed == 0 ? 0 : 1;
}
