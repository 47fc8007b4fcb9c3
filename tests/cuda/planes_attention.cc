// SPDX-License-Identifier: Apache-2.0
//
// Attention over planes on a GPU as a host runs it: batches of rows are written, their tokens read
// the cache. The reference reads rows back through the CPU library, but for the tiles of a batch,
// which its tokens must have seen as they were written, and computes in double.
//   kvarn_cuda_planes_attention
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "device_array.h"
#include "kvarn/kvarn.h"
#include "kvarn/kvarn_cuda.h"
#include "reference/reference_half.h"

namespace {

using kvarn_cuda_test::DeviceArray;
using kvarn_reference::HalfFromFloat;
using kvarn_reference::HalfToFloat;

constexpr int kDim = 128;
constexpr int kKvHeads = 2;
constexpr int kPerKv = 4;
constexpr int kHeads = kKvHeads * kPerKv;
constexpr int kGroup = 128;
constexpr int kMostDecoded = 16;  // tokens a stream, with kPerKv query heads
constexpr int kRow = kKvHeads * kDim;
constexpr int64_t kPlaneRows = 2048;
constexpr float kScale = 0.0883883476F;

void Check(bool ok, const char* what) {
  if (ok) return;
  std::printf("FAILED: %s (CUDA: %s)\n", what, cudaGetErrorString(cudaGetLastError()));
  std::exit(1);
}

struct Part {  // K or V
  kvarn_plane* plane = nullptr;
  uint8_t* planes = nullptr;
  size_t bytes = 0;
  std::vector<float> given;  // [streams][rows][kRow], as written
};

class Cache {
 public:
  Cache(int n_streams, int key_bits, int value_bits) : n_streams_(n_streams) {
    for (int i = 0; i < 2; ++i) {
      const kvarn_plane_config config = {
          {i == 0 ? KVARN_KEY : KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA,
           i == 0 ? key_bits : value_bits, kGroup, kDim},
          kPlaneRows,
          kGroup,
          1};
      Part& part = parts_[i];
      Check(kvarn_plane_create(&config, &part.plane) == KVARN_OK, "plane");
      part.bytes = kvarn_plane_bytes(part.plane);
      const size_t all = part.bytes * kKvHeads * static_cast<size_t>(n_streams);
      Check(cudaMalloc(reinterpret_cast<void**>(&part.planes), all) == cudaSuccess, "memory");
      cudaMemset(part.planes, 0, all);
      part.given.resize(static_cast<size_t>(n_streams * kPlaneRows * kRow));
    }
    for (cudaStream_t* stream : {&main_, &side_}) {
      Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) == cudaSuccess, "stream");
    }
  }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache() {
    for (Part& part : parts_) {
      cudaFree(part.planes);
      kvarn_plane_destroy(part.plane);
    }
    for (cudaStream_t stream : {main_, side_}) cudaStreamDestroy(stream);
  }

  // Rows [begin, begin + n) of each stream, then attention of their tokens; the largest share of
  // the bound that an output is off by.
  double Step(int64_t begin, int n, std::mt19937* random) {
    std::normal_distribution<float> normal;
    NoteExactTiles(begin);
    const int total = n * n_streams_;
    std::vector<int64_t> rows;
    std::vector<float> x[2];
    for (int s = 0; s < n_streams_; ++s) {
      for (int i = 0; i < n; ++i) rows.push_back(s * kPlaneRows + begin + i);
    }
    for (int part = 0; part < 2; ++part) {
      for (int i = 0; i < total * kRow; ++i) x[part].push_back(normal(*random));
      for (int i = 0; i < total; ++i) {
        std::copy_n(x[part].begin() + i * kRow, kRow,
                    parts_[part].given.begin() + rows[static_cast<size_t>(i)] * kRow);
      }
    }
    std::vector<float> query(static_cast<size_t>(total * kHeads * kDim));
    for (float& q : query) q = normal(*random);
    // Token i sees the rows up to its own, but for one in seven.
    const int64_t padded = std::min<int64_t>((begin + n + 255) / 256 * 256, kPlaneRows);
    std::vector<uint16_t> mask(static_cast<size_t>(total * padded), 0xFC00);
    for (int t = 0; t < total; ++t) {
      for (int64_t row = 0; row <= begin + t % n; ++row) {
        if (row % 7 != 3 || row == begin + t % n) mask[static_cast<size_t>(t * padded + row)] = 0;
      }
    }
    const std::vector<float> out = Run(rows, x, query, mask, n, padded);
    double worst = 0;
    for (int t = 0; t < total; ++t) {
      for (int h = 0; h < kHeads; ++h) {
        worst = std::max(worst, Compare(begin, n, t, h, query, mask, padded, out));
      }
    }
    return worst;
  }

 private:
  std::vector<float> Run(const std::vector<int64_t>& rows, const std::vector<float> (&x)[2],
                         const std::vector<float>& query, const std::vector<uint16_t>& mask, int n,
                         int64_t padded) {
    DeviceArray<int64_t> d_rows(rows);
    DeviceArray<float> d_keys(x[0]), d_values(x[1]), d_query(query);
    DeviceArray<uint16_t> d_mask(mask);
    DeviceArray<float> d_out(std::vector<float>(query.size(), NAN));
    kvarn_cuda_plane_write writes[2] = {};
    for (int part = 0; part < 2; ++part) {
      kvarn_cuda_plane_write& w = writes[part];
      w.plane = parts_[part].plane;
      w.planes = parts_[part].planes;
      w.plane_stride = static_cast<int64_t>(parts_[part].bytes);
      w.n_streams = n_streams_;
      w.n_kv_heads = kKvHeads;
      w.n_rows = static_cast<int32_t>(rows.size());
      w.rows = d_rows.get();
      w.x = part == 0 ? d_keys.get() : d_values.get();
      w.row_stride = kRow * int64_t{sizeof(float)};
      w.head_stride = kDim * int64_t{sizeof(float)};
    }
    writes[0].query = d_query.get();
    writes[0].heads_per_kv = kPerKv;
    writes[0].query_head_stride = kDim * int64_t{sizeof(float)};
    writes[0].query_row_stride = kHeads * writes[0].query_head_stride;
    kvarn_attention call = {};
    call.key_plane = parts_[0].plane;
    call.value_plane = parts_[1].plane;
    call.keys = parts_[0].planes;
    call.values = parts_[1].planes;
    call.key_head_stride = parts_[0].bytes;
    call.value_head_stride = parts_[1].bytes;
    call.key_stream_stride = kKvHeads * parts_[0].bytes;
    call.value_stream_stride = kKvHeads * parts_[1].bytes;
    call.n_streams = n_streams_;
    call.n_tokens = n;
    call.n_heads = kHeads;
    call.n_kv_heads = kKvHeads;
    call.n_rows = padded;
    call.query = d_query.get();
    call.out = d_out.get();
    call.query_head_stride = call.out_head_stride = kDim * sizeof(float);
    call.query_token_stride = call.out_token_stride = kHeads * call.query_head_stride;
    call.query_stream_stride = call.out_stream_stride =
        static_cast<size_t>(n) * call.query_token_stride;
    call.mask = d_mask.get();
    call.mask_heads = 1;
    call.mask_streams = n_streams_;
    call.mask_token_stride = static_cast<size_t>(padded) * sizeof(uint16_t);
    call.mask_stream_stride = static_cast<size_t>(n) * call.mask_token_stride;
    call.scale = kScale;
    const size_t recent_bytes = kvarn_cuda_recent_bytes(writes);
    Check((recent_bytes != 0) == (static_cast<int>(rows.size()) > kGroup), "recent bytes");
    copies_ = recent_bytes != 0;
    DeviceArray<uint8_t> recent(std::vector<uint8_t>(recent_bytes + 1));
    const size_t write_bytes = kvarn_cuda_planes_write_workspace_bytes(writes, 2);
    DeviceArray<uint8_t> write_space((std::vector<uint8_t>(write_bytes)));
    const size_t bytes = kvarn_cuda_attention_workspace_bytes(&call);
    Check(bytes != 0, "no kernel for this shape");
    DeviceArray<uint8_t> space((std::vector<uint8_t>(bytes)));
    kvarn_cuda_recent view = {};
    if (copies_) {
      Check(kvarn_cuda_recent_begin(writes, recent.get(), nullptr) == KVARN_OK, "recent begin");
      Check(kvarn_cuda_recent_copy(writes, recent.get(), nullptr) == KVARN_OK, "recent copy");
      Check(kvarn_cuda_recent_view(writes, recent.get(), 0, &view) == KVARN_OK, "recent view");
    }
    Check((kvarn_cuda_attention_reads_recent(&call) != 0) == (n > kMostDecoded), "reads recent");
    Check(!copies_ || n > kMostDecoded, "a batch with copies that attention does not read");
    const void* block = copies_ ? recent.get() : nullptr;
    const kvarn_cuda_recent* given = copies_ ? &view : nullptr;
    Check(cudaDeviceSynchronize() == cudaSuccess, "copies");
    // The rest of the write beside attention, in either order.
    Check(kvarn_cuda_planes_write_first(writes, 2, block, write_space.get(), main_) == KVARN_OK,
          "first part of the write");
    Check(cudaStreamSynchronize(main_) == cudaSuccess, "first part of the write");
    const auto rest = [&] {
      Check(block == nullptr || kvarn_cuda_planes_write_rest(writes, 2, block, write_space.get(),
                                                             side_) == KVARN_OK,
            "rest of the write");
    };
    rest_first_ = !rest_first_;
    if (rest_first_) rest();
    Check(kvarn_cuda_attention_plan(&call, given, space.get(), main_) == KVARN_OK, "plan");
    Check(kvarn_cuda_attention_run(&call, given, space.get(), main_) == KVARN_OK, "run");
    if (!rest_first_) {
      Check(cudaStreamSynchronize(main_) == cudaSuccess, "attention");
      rest();
    }
    Check(cudaDeviceSynchronize() == cudaSuccess, "kernels");
    for (Part& part : parts_) ReadBack(&part);
    return d_out.Download();
  }

  // Tiles before a row that hold rows as they were given: they are open.
  void NoteExactTiles(int64_t begin) {
    for (Part& part : parts_) ReadBack(&part);
    exact_before_.assign(static_cast<size_t>(kPlaneRows / kGroup + 1), true);
    for (int64_t at = 0; at < begin * kRow; ++at) {
      const auto i = static_cast<size_t>(at);  // of the first stream; all are alike
      const float given = HalfToFloat(HalfFromFloat(parts_[0].given[i], nullptr));
      if (read_[0][i] != given) exact_before_[static_cast<size_t>(at / kRow / kGroup)] = false;
    }
  }

  void ReadBack(Part* part) {
    std::vector<uint8_t> memory(part->bytes);
    std::vector<uint16_t> rows(static_cast<size_t>(kPlaneRows * kDim));
    std::vector<float>& read = read_[part - parts_];
    read.resize(part->given.size());
    for (int s = 0; s < n_streams_; ++s) {
      for (int h = 0; h < kKvHeads; ++h) {
        const size_t at = static_cast<size_t>(s * kKvHeads + h) * part->bytes;
        cudaMemcpy(memory.data(), part->planes + at, part->bytes, cudaMemcpyDeviceToHost);
        Check(kvarn_plane_read(part->plane, memory.data(), 0, kPlaneRows, rows.data(),
                               kDim * sizeof(uint16_t)) == KVARN_OK,
              "read");
        for (int64_t row = 0; row < kPlaneRows; ++row) {
          for (int d = 0; d < kDim; ++d) {
            read[static_cast<size_t>(((s * kPlaneRows) + row) * kRow + h * kDim + d)] =
                HalfToFloat(rows[static_cast<size_t>(row * kDim + d)]);
          }
        }
      }
    }
  }

  // Rounding of queries, of rotated queries and of weights to fp16, each half a unit of 2^-10; the
  // rotated frame adds no more than the norms that bound the products.
  double Compare(int64_t begin, int n, int token, int head, const std::vector<float>& query,
                 const std::vector<uint16_t>& mask, int64_t padded,
                 const std::vector<float>& out) const {
    const int stream = token / n;
    const int kv_head = head / kPerKv;
    const float* q = query.data() + (token * kHeads + head) * kDim;
    // Tiles of the batch, and those that were open before: as given. Rows that were there before a
    // batch of this test begins in the middle of a tile are in an open tile too.
    const auto row_of = [&](int part, int64_t row, int d) {
      const auto at = static_cast<size_t>((stream * kPlaneRows + row) * kRow + kv_head * kDim + d);
      const bool exact = copies_ && (row / kGroup >= begin / kGroup ||
                                     exact_before_[static_cast<size_t>(row / kGroup)]);
      return exact ? HalfToFloat(HalfFromFloat(parts_[part].given[at], nullptr)) : read_[part][at];
    };
    double q_norm = 0;
    for (int d = 0; d < kDim; ++d) q_norm += double{q[d]} * q[d];
    std::vector<double> weights(static_cast<size_t>(padded), -INFINITY);
    double top = -INFINITY;
    double most = 0;
    for (int64_t row = 0; row < padded; ++row) {
      if (mask[static_cast<size_t>(token * padded + row)] != 0) continue;
      double score = 0;
      double k_norm = 0;
      for (int d = 0; d < kDim; ++d) {
        const double k = row_of(0, row, d);
        score += q[d] * k;
        k_norm += k * k;
      }
      weights[static_cast<size_t>(row)] = kScale * score;
      most = std::max(most, kScale * std::sqrt(q_norm * k_norm));
      top = std::max(top, kScale * score);
    }
    std::vector<double> sum(kDim), size(kDim);
    double total = 0;
    for (int64_t row = 0; row < padded; ++row) {
      const double weight = std::exp(weights[static_cast<size_t>(row)] - top);
      total += weight;
      for (int d = 0; d < kDim && weight > 0; ++d) {
        const double v = row_of(1, row, d);
        sum[static_cast<size_t>(d)] += weight * v;
        size[static_cast<size_t>(d)] += weight * std::fabs(v);
      }
    }
    const double half = std::ldexp(1.0, -11);
    const double relative = std::expm1(2 * 2 * half * most) + 4 * half;
    double worst = 0;
    double v_norm = 0;
    for (const double s : size) v_norm += s * s / total / total;
    for (int d = 0; d < kDim; ++d) {
      const double is = out[static_cast<size_t>((token * kHeads + head) * kDim + d)];
      const double bound =
          relative * (size[static_cast<size_t>(d)] / total + std::sqrt(v_norm / kDim));
      const double off = std::fabs(is - sum[static_cast<size_t>(d)] / total);
      worst = std::max(worst, std::isfinite(is) ? off / bound : INFINITY);
    }
    return worst;
  }

  int n_streams_;
  Part parts_[2];
  std::vector<float> read_[2];
  std::vector<bool> exact_before_;  // by tile
  cudaStream_t main_ = nullptr;
  cudaStream_t side_ = nullptr;
  bool copies_ = false;
  bool rest_first_ = false;
};

// Prompts of several lengths, single tokens and drafts, in one cache after the other.
bool RunCase(const char* name, int n_streams, int key_bits, int value_bits,
             const std::vector<int>& batches) {
  std::mt19937 random(7);
  Cache cache(n_streams, key_bits, value_bits);
  double worst = 0;
  int64_t begin = 0;
  for (const int n : batches) {
    if (n > 0) worst = std::max(worst, cache.Step(begin, n, &random));
    begin += n;  // below 0: the host goes back by so many rows
  }
  const bool passed = worst <= 1.0;
  std::printf("%s %-50s %.0f %% of the bound\n", passed ? "passed" : "FAILED", name, 100 * worst);
  return passed;
}

}  // namespace

int main() {
  if (!kvarn_cuda_test::HasDevice()) {
    std::printf("skipped: no CUDA device on this machine\n");
    return 77;
  }
  bool passed = true;
  passed &= RunCase("k4v2 one stream", 1, 4, 2, {5, 300, 1, 1, 2, 200, 70, 1, 513, 1, 4, 129, 1});
  passed &= RunCase("k4v2 three streams", 3, 4, 2, {5, 300, 1, 2, 200, 1, 130, 1});
  passed &= RunCase("k2v2 one stream", 1, 2, 2, {260, 1, 1, 300, 1});
  // Back to the beginning of a tile: whole tiles of the second batch are sealed before it.
  passed &= RunCase("k4v2 one stream, rolled back", 1, 4, 2, {900, -772, 400, 1, -17, 300, 1});
  std::printf("%s\n", passed ? "all passed" : "failed");
  return passed ? 0 : 1;
}
