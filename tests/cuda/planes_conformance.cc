// SPDX-License-Identifier: Apache-2.0
//
// Planes on the device are byte for byte those of the CPU after any writes (planes_rows.h), K and V
// in one call or alone, with a workspace or without.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "device_array.h"
#include "kvarn/kvarn_cuda.h"
#include "planes_rows.h"

namespace {

using kvarn_cuda_test::Check;
using kvarn_cuda_test::DeviceArray;
using kvarn_cuda_test::PlaneRows;

constexpr int kSkip = 77;
constexpr int kStreams = 2;
constexpr int kHeads = 2;
constexpr int kQueriesPerHead = 3;

struct PlaneCase {
  const char* name;
  int key_bits, value_bits, group, key_dim, value_dim;
  int64_t n_rows;
  int tail_rows, sink_tiles;
};

struct DestroyPlane {
  void operator()(kvarn_plane* plane) const { kvarn_plane_destroy(plane); }
};

// The planes of all streams and heads, on the CPU and on the device, and the rows of one call.
class Side {
 public:
  Side(const PlaneCase& c, kvarn_role role)
      : role_(role), dim_(static_cast<size_t>(role == KVARN_KEY ? c.key_dim : c.value_dim)) {
    const kvarn_plane_config config = {
        {role, KVARN_BALANCED, KVARN_ORDER_CUDA, role == KVARN_KEY ? c.key_bits : c.value_bits,
         c.group, static_cast<int32_t>(dim_)},
        c.n_rows,
        c.tail_rows,
        c.sink_tiles};
    kvarn_plane* made = nullptr;
    if (kvarn_plane_create(&config, &made) != KVARN_OK) {
      std::printf("FAILED %s: no plane\n", c.name);
      std::exit(1);
    }
    plane_.reset(made);
    bytes_ = kvarn_plane_bytes(made);
    host_.resize(bytes_ * kStreams * kHeads);
    device_ = std::make_unique<DeviceArray<uint8_t>>(host_);
    n_rows_ = c.n_rows;
  }

  // Writes on the CPU and describes the same for the device.
  kvarn_cuda_plane_write Write(const std::vector<int64_t>& rows, bool queries, PlaneRows* source) {
    const std::vector<float> x = source->Values(rows.size() * kHeads * dim_);
    const std::vector<float> query = source->Values(rows.size() * kHeads * kQueriesPerHead * dim_);
    queries = queries && role_ == KVARN_KEY;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] < 0 || rows[i] >= kStreams * n_rows_) continue;
      for (size_t head = 0; head < kHeads; ++head) {
        const auto stream = static_cast<size_t>(rows[i] / n_rows_);
        kvarn_plane_write(plane_.get(), &host_[(stream * kHeads + head) * bytes_],
                          rows[i] % n_rows_, &x[(i * kHeads + head) * dim_],
                          queries ? &query[(i * kHeads + head) * kQueriesPerHead * dim_] : nullptr,
                          kQueriesPerHead, dim_ * sizeof(float));
      }
    }
    device_rows_ = std::make_unique<DeviceArray<int64_t>>(rows);
    device_x_ = std::make_unique<DeviceArray<float>>(x);
    device_query_ = std::make_unique<DeviceArray<float>>(query);
    kvarn_cuda_plane_write write = {};
    write.plane = plane_.get();
    write.planes = device_->get();
    write.plane_stride = static_cast<int64_t>(bytes_);
    write.n_streams = kStreams;
    write.n_kv_heads = kHeads;
    write.n_rows = static_cast<int32_t>(rows.size());
    write.rows = device_rows_->get();
    write.x = device_x_->get();
    write.head_stride = static_cast<int64_t>(dim_ * sizeof(float));
    write.row_stride = write.head_stride * kHeads;
    write.query = queries ? device_query_->get() : nullptr;
    write.heads_per_kv = kQueriesPerHead;
    write.query_head_stride = write.head_stride;
    write.query_row_stride = write.head_stride * kHeads * kQueriesPerHead;
    return write;
  }

  bool Equal(const char* what) {
    const std::vector<uint8_t> got = device_->Download();
    const auto at = static_cast<size_t>(
        std::mismatch(host_.begin(), host_.end(), got.begin()).first - host_.begin());
    if (at == host_.size()) return true;
    std::printf("FAILED %s: plane %zu of %s differs at byte %zu of %zu\n", what, at / bytes_,
                role_ == KVARN_KEY ? "K" : "V", at % bytes_, bytes_);
    return false;
  }
  kvarn_plane_stats Stats() const {
    kvarn_plane_stats stats = {};
    kvarn_plane_get_stats(plane_.get(), host_.data(), &stats);
    return stats;
  }

 private:
  kvarn_role role_;
  size_t dim_;
  size_t bytes_ = 0;
  int64_t n_rows_ = 0;
  std::unique_ptr<kvarn_plane, DestroyPlane> plane_;
  std::vector<uint8_t> host_;
  std::unique_ptr<DeviceArray<uint8_t>> device_;
  std::unique_ptr<DeviceArray<int64_t>> device_rows_;
  std::unique_ptr<DeviceArray<float>> device_x_, device_query_;
};

// With copies of recent tiles, and the rest after what does not wait for it.
kvarn_status WriteInHalves(const kvarn_cuda_plane_write* writes, size_t recent_bytes,
                           void* workspace) {
  DeviceArray<uint8_t> recent(std::vector<uint8_t>(recent_bytes, 0xFF));
  kvarn_status status = kvarn_cuda_recent_begin(writes, recent.get(), nullptr);
  if (status == KVARN_OK) status = kvarn_cuda_recent_copy(writes, recent.get(), nullptr);
  if (status == KVARN_OK) {
    status = kvarn_cuda_planes_write_first(writes, 2, recent.get(), workspace, nullptr);
  }
  if (status == KVARN_OK) {
    status = kvarn_cuda_planes_write_rest(writes, 2, recent.get(), workspace, nullptr);
  }
  Check(cudaDeviceSynchronize(), "write in halves");
  return status;
}

// Takes the rows of all calls into the tables before there are any, then writes them.
kvarn_status TakeAndWrite(std::vector<kvarn_cuda_plane_write> writes, void* workspace) {
  const auto n = static_cast<int32_t>(writes.size());
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> blocks;
  std::vector<kvarn_cuda_plane_write> early;
  for (kvarn_cuda_plane_write& write : writes) {
    const size_t bytes = kvarn_cuda_planes_taken_bytes(&write);
    blocks.push_back(std::make_unique<DeviceArray<uint8_t>>(std::vector<uint8_t>(bytes, 0xFF)));
    write.taken = blocks.back()->get();
    early.push_back(write);
    early.back().x = reinterpret_cast<const float*>(blocks.back()->get());  // not read
  }
  kvarn_status status = kvarn_cuda_planes_take(early.data(), n, nullptr);
  if (status == KVARN_OK) status = kvarn_cuda_planes_write(writes.data(), n, workspace, nullptr);
  Check(cudaDeviceSynchronize(), "take and write");
  return status;
}

int RunCase(const PlaneCase& c, int calls, unsigned seed) {
  Side key(c, KVARN_KEY);
  Side value(c, KVARN_VALUE);
  PlaneRows source(kStreams, c.n_rows, c.group, seed);
  std::mt19937 random(seed);
  for (int call = 0; call < calls; ++call) {
    std::vector<kvarn_cuda_plane_write> writes;
    const std::vector<int64_t> rows = source.Next();
    const auto kind = random() % 6;  // 0 and 1: one of the two alone
    if (kind != 0) writes.push_back(key.Write(rows, call % 5 != 4, &source));
    if (kind != 1) writes.push_back(value.Write(rows, false, &source));
    const auto n = static_cast<int32_t>(writes.size());
    const size_t bytes = kvarn_cuda_planes_write_workspace_bytes(writes.data(), n);
    DeviceArray<uint8_t> workspace(std::vector<uint8_t>(bytes, 0xFF));
    const bool serial = random() % 4 == 0;
    const size_t recent_bytes = n == 2 ? kvarn_cuda_recent_bytes(writes.data()) : 0;
    const bool halves = recent_bytes != 0 && !serial && random() % 2 == 0;
    const bool taken =
        !halves && kvarn_cuda_planes_taken_bytes(writes.data()) != 0 && random() % 2 == 0;
    void* space = serial ? nullptr : workspace.get();
    const kvarn_status status = halves ? WriteInHalves(writes.data(), recent_bytes, workspace.get())
                                : taken ? TakeAndWrite(writes, space)
                                        : kvarn_cuda_planes_write(writes.data(), n, space, nullptr);
    if (status != KVARN_OK) {
      std::printf("FAILED %s: %s\n", c.name, kvarn_status_text(status));
      return 1;
    }
    Check(cudaDeviceSynchronize(), "write");
    char what[160];
    std::snprintf(what, sizeof(what), "%s, call %d of %zu rows (%s)%s", c.name, call, rows.size(),
                  source.Kind(),
                  taken    ? " taken before"
                  : serial ? " without workspace"
                  : halves ? " in halves"
                           : "");
    if (!key.Equal(what) || !value.Equal(what)) return 1;
  }
  const kvarn_plane_stats stats = key.Stats();
  std::printf("%-44s %llu rows, %llu seals, %llu reopens in the first K plane\n", c.name,
              static_cast<unsigned long long>(stats.rows_written),
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
  const int calls = argc > 1 ? std::atoi(argv[1]) : 120;  // fewer where threads run one by one
  const unsigned seed = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 500;
  const PlaneCase cases[] = {
      {"K 4 bits, V 2 bits", 4, 2, 128, 128, 128, 4000, 128, 1},
      {"K and V 3 bits, group 64, D 80 and 96", 3, 3, 64, 80, 96, 1500, 64, 1},
      {"8 bits, a ring without tail, D 64", 8, 8, 128, 64, 64, 700, 0, 0},
      {"K 2 bits, V 4 bits, D 256 and 192, long tail", 2, 4, 128, 256, 192, 2000, 300, 2},
      {"K 4 bits, V 8 bits, group 64, tail of 1", 4, 8, 64, 64, 128, 1000, 1, 1},
  };
  int failed = 0;
  unsigned count = 0;
  for (const PlaneCase& c : cases) failed += RunCase(c, calls, seed + count++);
  std::printf("%u passed, %d failed\n", count - static_cast<unsigned>(failed), failed);
  return failed == 0 ? 0 : 1;
}
