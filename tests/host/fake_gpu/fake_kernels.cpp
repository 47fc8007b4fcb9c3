// SPDX-License-Identifier: Apache-2.0
//
// The kernels that the plug-in calls, played by the host: writes by the library's own planes,
// attention on rows that are read back. Attention also checks what the kernels take for
// granted: that the planes of a stream agree, and that a plan serves the planes it is used with.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cache/plane.h"
#include "host.h"
#include "kvarn/kvarn_cuda.h"
#include "rest.h"

namespace {

// The rows that the rest of the last write reads, until its stream is waited for, or until it runs
// on the stream of those who may overwrite them.
struct Rest {
  const void* stream;  // null: nothing is left to read; of rest itself: it has not come yet
  const void* first;   // the stream of the write
  const uint8_t* begin[2];
  const uint8_t* end[2];
};
thread_local Rest rest = {};

// Says so, once, if the tables tell of what the rest was to do. It would have come by now.
bool RestIsMissing() {
  if (rest.stream != &rest) return false;
  std::fprintf(stderr, "fake GPU: the rest of a write has not come\n");
  rest.stream = nullptr;
  return true;
}

bool IsReadByRest(const void* begin, const void* end) {
  for (int i = 0; i < 2; ++i) {
    if (rest.stream != nullptr && begin < rest.end[i] && end > rest.begin[i]) return true;
  }
  return false;
}

constexpr size_t kWorkspace = 4096;  // life of every stream, when the plan was made
// Limits of writes (kvarn_cuda.h).
constexpr int kMaxHeadDim = 256;
constexpr int kMaxSlots = 64;
constexpr int kMaxStreams = kWorkspace / sizeof(uint64_t);

constexpr int kMostTakenRows = 32;

// What taking a call leaves in its block.
struct Taken {
  const void* planes;
  int64_t rows[kMostTakenRows];
};
bool WasTaken(const kvarn_cuda_plane_write& w) {
  Taken taken;
  std::memcpy(&taken, w.taken, sizeof(taken));
  std::memset(w.taken, 0, sizeof(taken));
  return taken.planes == w.planes && std::equal(w.rows, w.rows + w.n_rows, taken.rows);
}

const uint8_t* PlaneOf(const void* planes, size_t stream_stride, size_t head_stride, int stream,
                       int head) {
  return static_cast<const uint8_t*>(planes) + static_cast<size_t>(stream) * stream_stride +
         static_cast<size_t>(head) * head_stride;
}

// Of all planes of a stream; says so and returns false if they do not agree.
bool LifeOf(const kvarn_attention& c, int stream, uint64_t* life) {
  *life = kvarn_plane_life(c.key_plane,
                           PlaneOf(c.keys, c.key_stream_stride, c.key_head_stride, stream, 0));
  for (int head = 0; head < c.n_kv_heads; ++head) {
    const uint64_t key = kvarn_plane_life(
        c.key_plane, PlaneOf(c.keys, c.key_stream_stride, c.key_head_stride, stream, head));
    const uint64_t value = kvarn_plane_life(
        c.value_plane, PlaneOf(c.values, c.value_stream_stride, c.value_head_stride, stream, head));
    if (key == *life && value == *life) continue;
    std::fprintf(stderr, "fake GPU: planes of stream %d, head %d have parted\n", stream, head);
    return false;
  }
  return true;
}

std::vector<float> Rows(const kvarn_plane* plane, const uint8_t* memory, int64_t n, int dim) {
  std::vector<uint16_t> half(static_cast<size_t>(n * dim));
  std::vector<float> rows(half.size());
  const size_t stride = static_cast<size_t>(dim) * sizeof(uint16_t);
  kvarn_plane_read(plane, memory, 0, n, half.data(), stride);
  kvarn::ggml_plugin::Host().ggml_fp16_to_fp32_row(half.data(), rows.data(), n * dim);
  return rows;
}

template <typename T>
T* At(T* base, size_t a, size_t a_stride, size_t b, size_t b_stride, size_t c, size_t c_stride) {
  using Byte = std::conditional_t<std::is_const_v<T>, const uint8_t, uint8_t>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(base) + a * a_stride + b * b_stride +
                              c * c_stride);
}

// FAKE_GPU_NO_PLAN: plans for that many tokens fail.
bool MemoryIsShort(const kvarn_attention& call) {
  const char* tokens = std::getenv("FAKE_GPU_NO_PLAN");
  return tokens != nullptr && call.n_tokens == std::atoi(tokens);
}

struct Head {
  std::vector<float> keys, values;
  int key_dim, value_dim;
};

void Attend(const kvarn_attention& c, const Head& rows, size_t stream, size_t token, size_t head) {
  const float* query = At(c.query, stream, c.query_stream_stride, token, c.query_token_stride, head,
                          c.query_head_stride);
  float* out =
      At(c.out, stream, c.out_stream_stride, token, c.out_token_stride, head, c.out_head_stride);
  const uint16_t* mask_row = At(c.mask, stream % static_cast<size_t>(c.mask_streams),
                                c.mask_stream_stride, token, c.mask_token_stride, 0, 0);
  std::vector<float> mask(static_cast<size_t>(c.n_rows));
  kvarn::ggml_plugin::Host().ggml_fp16_to_fp32_row(mask_row, mask.data(), c.n_rows);
  std::vector<float> weights(mask.size());
  float top = c.sinks != nullptr ? c.sinks[head] : -INFINITY;
  for (size_t row = 0; row < weights.size(); ++row) {
    weights[row] = mask[row];
    if (!(mask[row] > -INFINITY)) continue;
    const float* key = rows.keys.data() + row * static_cast<size_t>(rows.key_dim);
    float score = 0;
    for (int d = 0; d < rows.key_dim; ++d) score += query[d] * key[d];
    score *= c.scale;
    if (c.softcap != 0) score = c.softcap * std::tanh(score / c.softcap);
    weights[row] += score;
    top = std::max(top, weights[row]);
  }
  std::vector<float> sum(static_cast<size_t>(rows.value_dim));
  float total = c.sinks != nullptr ? std::exp(c.sinks[head] - top) : 0;
  for (size_t row = 0; row < weights.size(); ++row) {
    if (!(weights[row] > -INFINITY)) continue;
    const float weight = std::exp(weights[row] - top);
    total += weight;
    const float* value = rows.values.data() + row * sum.size();
    for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * value[d];
  }
  for (size_t d = 0; d < sum.size(); ++d) out[d] = total > 0 ? sum[d] / total : 0;
}

}  // namespace

void fake_gpu::RestIsAwaited(const void* stream) {
  if (rest.stream == stream) rest.stream = nullptr;
}

void fake_gpu::StreamEnds(const void* stream) {
  if (rest.first == stream) RestIsMissing();
}

extern "C" {

size_t kvarn_cuda_planes_write_workspace_bytes(const kvarn_cuda_plane_write* calls, int32_t n) {
  for (int i = 0; i < n; ++i) {
    const kvarn_plane& plane = *calls[i].plane;
    if (plane.config.format.head_dim > kMaxHeadDim || plane.n_slots > kMaxSlots) return 0;
  }
  return kWorkspace;
}

// Of the planes that a call was taken into, until it is written.
size_t kvarn_cuda_planes_taken_bytes(const kvarn_cuda_plane_write* call) {
  return call->n_rows <= kMostTakenRows ? sizeof(Taken) : 0;
}
kvarn_status kvarn_cuda_planes_take(const kvarn_cuda_plane_write* calls, int32_t n_calls, void*) {
  for (int call = 0; call < n_calls; ++call) {
    const kvarn_cuda_plane_write& w = calls[call];
    Taken taken = {w.planes, {}};
    std::copy_n(w.rows, w.n_rows, taken.rows);
    std::memcpy(w.taken, &taken, sizeof(taken));
  }
  return KVARN_OK;
}

kvarn_status kvarn_cuda_planes_write(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                     void* workspace, void*) {
  if (workspace == nullptr) return KVARN_ERROR_ARGUMENT;
  for (int call = 0; call < n_calls; ++call) {
    const kvarn_cuda_plane_write& w = calls[call];
    if (w.taken != nullptr && !WasTaken(w)) {
      std::fprintf(stderr, "fake GPU: a write that was not taken, or twice\n");
      return KVARN_ERROR_ARGUMENT;
    }
    const kvarn_plane_config& config = w.plane->config;
    for (int i = 0; i < w.n_rows; ++i) {
      const int64_t stream = w.rows[i] / config.n_rows;
      if (w.rows[i] < 0 || stream >= w.n_streams) continue;
      for (int head = 0; head < w.n_kv_heads; ++head) {
        auto* memory =
            static_cast<uint8_t*>(w.planes) + (stream * w.n_kv_heads + head) * w.plane_stride;
        const auto* x =
            reinterpret_cast<const uint8_t*>(w.x) + i * w.row_stride + head * w.head_stride;
        const auto* query = reinterpret_cast<const uint8_t*>(w.query);
        if (query != nullptr) {
          query += i * w.query_row_stride + head * w.heads_per_kv * w.query_head_stride;
        }
        const kvarn_status status = kvarn_plane_write(
            w.plane, memory, w.rows[i] % config.n_rows, reinterpret_cast<const float*>(x),
            reinterpret_cast<const float*>(query), query == nullptr ? 0 : w.heads_per_kv,
            static_cast<size_t>(w.query_head_stride));
        if (status != KVARN_OK) return status;
      }
    }
  }
  return KVARN_OK;
}

kvarn_status kvarn_cuda_planes_write_first(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                           const void* recent, void* workspace, void* stream) {
  if (RestIsMissing()) return KVARN_ERROR_ARGUMENT;
  rest.first = stream;
  rest.stream = recent != nullptr ? &rest : nullptr;
  for (int i = 0; i < 2 && recent != nullptr; ++i) {
    rest.begin[i] = reinterpret_cast<const uint8_t*>(calls[i].x);
    rest.end[i] = rest.begin[i] + calls[i].n_rows * calls[i].row_stride;
  }
  return kvarn_cuda_planes_write(calls, n_calls, workspace, stream);
}
kvarn_status kvarn_cuda_planes_write_rest(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                          const void* recent, void*, void* stream) {
  if (recent == nullptr || n_calls != 2 || rest.stream != &rest ||
      rest.begin[0] != reinterpret_cast<const uint8_t*>(calls[0].x)) {
    std::fprintf(stderr, "fake GPU: the rest of no write\n");
    return KVARN_ERROR_ARGUMENT;
  }
  rest.stream = stream;
  return KVARN_OK;
}

size_t kvarn_cuda_attention_workspace_bytes(const kvarn_attention* call) {
  return call->mask != nullptr && call->mask_heads == 1 && call->n_streams <= kMaxStreams
             ? kWorkspace
             : 0;
}

// Copies are written where they would lie, but not played: attention reads what the planes have.
size_t kvarn_cuda_recent_bytes(const kvarn_cuda_plane_write* writes) {
  size_t rows = 0;
  for (int i = 0; i < 2; ++i) {
    rows += static_cast<size_t>(writes[i].n_kv_heads) * static_cast<size_t>(writes[i].n_rows);
  }
  return writes[0].n_rows > 128 ? 128 * rows : 0;
}
kvarn_status kvarn_cuda_recent_begin(const kvarn_cuda_plane_write*, void*, void*) {
  return KVARN_OK;
}
kvarn_status kvarn_cuda_recent_copy(const kvarn_cuda_plane_write* writes, void* recent, void*) {
  std::memset(recent, 1, kvarn_cuda_recent_bytes(writes));
  return KVARN_OK;
}
kvarn_status kvarn_cuda_recent_view(const kvarn_cuda_plane_write*, const void*, int32_t,
                                    kvarn_cuda_recent* view) {
  *view = {};
  return KVARN_OK;
}

int32_t kvarn_cuda_attention_reads_recent(const kvarn_attention* call) {
  return call->n_tokens > 16 ? 1 : 0;
}

kvarn_status kvarn_cuda_attention_plan(const kvarn_attention* call, const kvarn_cuda_recent*,
                                       void* workspace, void*) {
  if (MemoryIsShort(*call)) return KVARN_ERROR_MEMORY;
  for (int stream = 0; stream < call->n_streams; ++stream) {
    if (!LifeOf(*call, stream, static_cast<uint64_t*>(workspace) + stream)) {
      return KVARN_ERROR_ARGUMENT;
    }
  }
  return KVARN_OK;
}

kvarn_status kvarn_cuda_attention_run(const kvarn_attention* call, const kvarn_cuda_recent* recent,
                                      void* workspace, void* run_stream) {
  const kvarn_attention& c = *call;
  const auto* out = reinterpret_cast<const uint8_t*>(c.out);
  const auto tokens = static_cast<size_t>(c.n_streams) * static_cast<size_t>(c.n_tokens);
  fake_gpu::RestIsAwaited(run_stream);
  if (recent == nullptr && RestIsMissing()) return KVARN_ERROR_ARGUMENT;  // it reads the planes
  if (IsReadByRest(out, out + tokens * c.out_token_stride)) {
    std::fprintf(stderr, "fake GPU: attention overwrites rows that are still read\n");
    return KVARN_ERROR_ARGUMENT;
  }
  for (int stream = 0; stream < c.n_streams; ++stream) {
    uint64_t life = 0;
    if (!LifeOf(c, stream, &life)) return KVARN_ERROR_ARGUMENT;
    if (life != static_cast<const uint64_t*>(workspace)[stream]) {
      std::fprintf(stderr, "fake GPU: the plan is not of these planes\n");
      return KVARN_ERROR_ARGUMENT;
    }
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      Head rows;
      rows.key_dim = c.key_plane->config.format.head_dim;
      rows.value_dim = c.value_plane->config.format.head_dim;
      rows.keys = Rows(c.key_plane,
                       PlaneOf(c.keys, c.key_stream_stride, c.key_head_stride, stream, kv_head),
                       c.n_rows, rows.key_dim);
      rows.values =
          Rows(c.value_plane,
               PlaneOf(c.values, c.value_stream_stride, c.value_head_stride, stream, kv_head),
               c.n_rows, rows.value_dim);
      const int per_kv = c.n_heads / c.n_kv_heads;
      for (int token = 0; token < c.n_tokens; ++token) {
        for (int i = 0; i < per_kv; ++i) {
          Attend(c, rows, static_cast<size_t>(stream), static_cast<size_t>(token),
                 static_cast<size_t>(kv_head * per_kv + i));
        }
      }
    }
  }
  return KVARN_OK;
}

}  // extern "C"
