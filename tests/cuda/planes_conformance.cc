// SPDX-License-Identifier: Apache-2.0
//
// Planes on the device are byte for byte those of the CPU after any writes: in order, rolled back,
// round a ring, scattered, with rows that are not finite.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "device_array.h"
#include "kvarn/kvarn_cuda.h"

namespace {

using kvarn_cuda_test::Check;
using kvarn_cuda_test::DeviceArray;

constexpr int kSkip = 77;
constexpr int kStreams = 2;
constexpr int kHeads = 2;
constexpr int kQueriesPerHead = 3;
constexpr int kMaxCallRows = 300;

struct PlaneCase {
  const char* name;
  kvarn_role role;
  int bits, group, head_dim;
  int64_t n_rows;
  int tail_rows, sink_tiles;
};

struct DestroyPlane {
  void operator()(kvarn_plane* plane) const { kvarn_plane_destroy(plane); }
};

// The rows that a call writes, of both streams: mostly in order, at times from further back.
class Rows {
 public:
  Rows(const PlaneCase& c, unsigned seed) : case_(c), random_(seed) {}

  std::vector<int64_t> Next(int call) {
    std::vector<int64_t> rows;
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      int64_t& at = at_[stream];
      const int kind = Draw(0, 9);
      if (kind == 0) at = Draw(0, case_.n_rows - 1);                            // anywhere
      if (kind == 1) at = std::max<int64_t>(at - Draw(1, 2 * case_.group), 0);  // rolled back
      const int64_t count = call % 3 == 0 ? Draw(1, kMaxCallRows / kStreams) : Draw(1, 6);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = kind == 2 ? Draw(0, case_.n_rows - 1) : at++ % case_.n_rows;
        rows.push_back(stream * case_.n_rows + row);
      }
    }
    if (Draw(0, 3) == 0) std::shuffle(rows.begin(), rows.end(), random_);
    return rows;
  }
  std::vector<float> Values(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& x : values) x = normal(random_);
    if (Draw(0, 2) == 0) values[count / 2] = std::numeric_limits<float>::quiet_NaN();
    if (Draw(0, 2) == 0) values[count / 3] = 1e6F;
    return values;
  }

 private:
  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  const PlaneCase& case_;
  std::mt19937 random_;
  int64_t at_[kStreams] = {};
};

int RunCase(const PlaneCase& c, int calls, unsigned seed) {
  const kvarn_plane_config config = {
      {c.role, KVARN_BALANCED, KVARN_ORDER_CUDA, c.bits, c.group, c.head_dim},
      c.n_rows,
      c.tail_rows,
      c.sink_tiles};
  kvarn_plane* made = nullptr;
  if (kvarn_plane_create(&config, &made) != KVARN_OK) {
    std::printf("FAILED %s: no plane\n", c.name);
    return 1;
  }
  const std::unique_ptr<kvarn_plane, DestroyPlane> plane(made);
  const size_t bytes = kvarn_plane_bytes(made);
  const size_t dim = static_cast<size_t>(c.head_dim);
  std::vector<uint8_t> host(bytes * kStreams * kHeads);
  DeviceArray<uint8_t> planes(host);
  Rows source(c, seed);
  for (int call = 0; call < calls; ++call) {
    const std::vector<int64_t> rows = source.Next(call);
    const std::vector<float> x = source.Values(rows.size() * kHeads * dim);
    const std::vector<float> query = source.Values(rows.size() * kHeads * kQueriesPerHead * dim);
    const bool queries = c.role == KVARN_KEY && call % 5 != 4;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t head = 0; head < kHeads; ++head) {
        const auto stream = static_cast<size_t>(rows[i] / c.n_rows);
        kvarn_plane_write(made, &host[(stream * kHeads + head) * bytes], rows[i] % c.n_rows,
                          &x[(i * kHeads + head) * dim],
                          queries ? &query[(i * kHeads + head) * kQueriesPerHead * dim] : nullptr,
                          kQueriesPerHead, dim * sizeof(float));
      }
    }
    DeviceArray<int64_t> device_rows(rows);
    DeviceArray<float> device_x(x);
    DeviceArray<float> device_query(query);
    kvarn_cuda_plane_write write = {};
    write.plane = made;
    write.planes = planes.get();
    write.plane_stride = static_cast<int64_t>(bytes);
    write.n_streams = kStreams;
    write.n_kv_heads = kHeads;
    write.n_rows = static_cast<int32_t>(rows.size());
    write.rows = device_rows.get();
    write.x = device_x.get();
    write.head_stride = static_cast<int64_t>(dim * sizeof(float));
    write.row_stride = write.head_stride * kHeads;
    write.query = queries ? device_query.get() : nullptr;
    write.heads_per_kv = kQueriesPerHead;
    write.query_head_stride = write.head_stride;
    write.query_row_stride = write.head_stride * kHeads * kQueriesPerHead;
    const kvarn_status status = kvarn_cuda_planes_write(&write, nullptr);
    if (status != KVARN_OK) {
      std::printf("FAILED %s: %s\n", c.name, kvarn_status_text(status));
      return 1;
    }
    Check(cudaDeviceSynchronize(), "write");
    const std::vector<uint8_t> got = planes.Download();
    const auto at = std::mismatch(host.begin(), host.end(), got.begin()).first - host.begin();
    if (at != static_cast<std::ptrdiff_t>(host.size())) {
      std::printf("FAILED %s, call %d of %zu rows: plane %zu differs at byte %zu of %zu\n", c.name,
                  call, rows.size(), static_cast<size_t>(at) / bytes,
                  static_cast<size_t>(at) % bytes, bytes);
      return 1;
    }
  }
  kvarn_plane_stats stats = {};
  kvarn_plane_get_stats(made, host.data(), &stats);
  std::printf("%-34s %llu seals, %llu reopens in the first plane\n", c.name,
              static_cast<unsigned long long>(stats.seals),
              static_cast<unsigned long long>(stats.reopens));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (!kvarn_cuda_test::HasDevice()) {
    std::printf("skipped: no CUDA device on this machine\n");
    return kSkip;
  }
  const int calls = argc > 1 ? std::atoi(argv[1]) : 30;  // fewer where threads run one by one
  const PlaneCase cases[] = {
      {"K 4 bits", KVARN_KEY, 4, 128, 128, 4000, 128, 1},
      {"V 2 bits", KVARN_VALUE, 2, 128, 128, 4000, 128, 1},
      {"K 3 bits, group 64, D 80", KVARN_KEY, 3, 64, 80, 1500, 64, 1},
      {"V 3 bits, group 64, D 96", KVARN_VALUE, 3, 64, 96, 1500, 64, 0},
      {"K 8 bits, a ring, D 64", KVARN_KEY, 8, 128, 64, 700, 0, 0},
      {"V 8 bits, a ring, D 64", KVARN_VALUE, 8, 128, 64, 700, 0, 0},
      {"K 2 bits, D 256, long tail", KVARN_KEY, 2, 128, 256, 2000, 300, 2},
      {"V 4 bits, D 192", KVARN_VALUE, 4, 128, 192, 2000, 1, 1},
  };
  int failed = 0;
  int count = 0;
  for (const PlaneCase& c : cases)
    failed += RunCase(c, calls, 500U + static_cast<unsigned>(count++));
  std::printf("%d passed, %d failed\n", count - failed, failed);
  return failed == 0 ? 0 : 1;
}
