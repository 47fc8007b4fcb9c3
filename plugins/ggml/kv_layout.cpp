// SPDX-License-Identifier: Apache-2.0
#include "kv_layout.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace kvarn::ggml_plugin {
namespace {

constexpr int64_t kMinTiles = 3;          // with KVARN_SLIDING=on: fewer are all sink and tail
constexpr int32_t kTypicalHeadDim = 128;  // ratios depend little on it
// With KVARN_SLIDING=auto a cache is quantised if it then takes at most 60 % of its fp16 size, or,
// for wide formats, at most 1.35 times what an endless cache would take.
constexpr double kWorthwhile = 0.60;
constexpr double kOverhead = 1.35;

double RecordRatio(const KvFormat& format) {
  const kvarn_format key = PlaneConfig(format, KVARN_KEY, kTypicalHeadDim, 1).format;
  const kvarn_format value = PlaneConfig(format, KVARN_VALUE, kTypicalHeadDim, 1).format;
  const double fp16 = 2.0 * sizeof(uint16_t) * kTypicalHeadDim * format.preset.group;
  return static_cast<double>(kvarn_record_bytes(&key) + kvarn_record_bytes(&value)) / fp16;
}

}  // namespace

bool IdentifyKv(const ggml_tensor* tensor, KvIdentity* identity) {
  if (tensor->op != GGML_OP_NONE || tensor->view_src != nullptr) return false;
  if (tensor->ne[1] < 1 || tensor->ne[2] < 1 || tensor->ne[3] != 1) return false;
  if (std::strncmp(tensor->name, "cache_", 6) != 0) return false;
  const char* layer = std::strrchr(tensor->name, 'l');
  if (layer == nullptr || layer < tensor->name + 8 || layer[-1] != '_') return false;
  const char role = layer[-2];
  if (role != 'k' && role != 'v') return false;
  char* end = nullptr;
  const long index = std::strtol(layer + 1, &end, 10);
  if (end == layer + 1 || *end != '\0' || index < 0) return false;
  identity->role = role == 'k' ? KVARN_KEY : KVARN_VALUE;
  identity->layer = static_cast<int>(index);
  return true;
}

kvarn_plane_config PlaneConfig(const KvFormat& format, kvarn_role role, int32_t head_dim,
                               int64_t n_rows) {
  kvarn_plane_config config = {};
  config.format.role = role;
  config.format.mode = format.mode;
  config.format.order = format.order;
  config.format.bits = role == KVARN_KEY ? format.preset.key_bits : format.preset.value_bits;
  config.format.group = format.preset.group;
  config.format.head_dim = head_dim;
  config.n_rows = n_rows;
  config.tail_rows = format.tail_rows;
  config.sink_tiles = format.sink_tiles;
  return config;
}

size_t PlaneBytes(const KvFormat& format, kvarn_role role, int32_t head_dim, int64_t n_rows) {
  const kvarn_plane_config config = PlaneConfig(format, role, head_dim, n_rows);
  kvarn_plane* plane = nullptr;
  if (kvarn_plane_create(&config, &plane) != KVARN_OK) return 0;
  const size_t bytes = kvarn_plane_bytes(plane);
  kvarn_plane_destroy(plane);
  return bytes;
}

Storage ChooseStorage(const KvFormat& format, int64_t n_rows, int64_t largest_rows) {
  if (format.sliding == Sliding::kOn) {
    return n_rows >= kMinTiles * format.preset.group ? Storage::kPlanes : Storage::kPlain;
  }
  if (format.sliding == Sliding::kOff && n_rows < largest_rows) return Storage::kPlain;
  const size_t plane = PlaneBytes(format, KVARN_KEY, kTypicalHeadDim, n_rows) +
                       PlaneBytes(format, KVARN_VALUE, kTypicalHeadDim, n_rows);
  const double fp16 = 2.0 * sizeof(uint16_t) * kTypicalHeadDim * static_cast<double>(n_rows);
  const double limit = std::max(kWorthwhile, kOverhead * RecordRatio(format));
  return static_cast<double>(plane) <= limit * fp16 ? Storage::kPlanes : Storage::kPlain;
}

int32_t GuessHeadDim(int64_t n_embd, int32_t hint) {
  if (hint > 0 && n_embd % hint == 0) return hint;
  return n_embd % 64 == 0 ? 64 : static_cast<int32_t>(n_embd);
}

size_t ArenaBytes(const KvFormat& format, kvarn_role role, int32_t head_dim,
                  const ggml_tensor* tensor) {
  const auto n_planes = static_cast<size_t>(tensor->ne[0] / head_dim * tensor->ne[2]);
  return n_planes * PlaneBytes(format, role, head_dim, tensor->ne[1]);
}

}  // namespace kvarn::ggml_plugin
