// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cache/plane.h"

namespace kvarn {
namespace {

constexpr size_t kAlignment = 64;

size_t Align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

kvarn_status MakePlane(const kvarn_plane_config& config, kvarn_plane* plane) {
  const kvarn_format& format = config.format;
  if (!IsLegal(format) || format.order == KVARN_ORDER_PORTABLE) return KVARN_ERROR_FORMAT;
  if (config.n_rows <= 0 || config.n_rows > (int64_t{1} << 40) || config.tail_rows < 0 ||
      config.sink_tiles < 0) {
    return KVARN_ERROR_ARGUMENT;
  }
  const int64_t group = format.group;
  const int64_t n_tiles = (config.n_rows + group - 1) / group;
  kvarn_plane made = {};
  made.config = config;
  made.record = MakeRecordLayout(format);
  made.n_tiles = n_tiles;
  // Sinks, the exact tail, the tile being filled, and one for a rewrite further back.
  const int64_t wanted = config.sink_tiles + (config.tail_rows + group - 1) / group + 2;
  const int64_t n_slots = std::min(wanted, n_tiles);
  if (n_slots > UINT16_MAX) return KVARN_ERROR_ARGUMENT;
  made.n_slots = static_cast<int>(n_slots);
  made.config.sink_tiles = static_cast<int32_t>(std::min<int64_t>(config.sink_tiles, n_tiles));

  const size_t exact_tile =
      sizeof(uint16_t) * static_cast<size_t>(format.head_dim) * static_cast<size_t>(format.group);
  made.tiles = sizeof(PlaneHeader);
  made.slots = Align(made.tiles + sizeof(TileEntry) * static_cast<size_t>(n_tiles));
  made.queries = Align(made.slots + sizeof(SlotEntry) * static_cast<size_t>(n_slots));
  made.exact = made.queries + (made.record.has_balance ? exact_tile : 0);
  made.records = made.exact + exact_tile * static_cast<size_t>(n_slots);
  made.bytes =
      made.records + made.record.bytes * static_cast<size_t>(n_tiles - made.config.sink_tiles);
  *plane = made;
  return KVARN_OK;
}

}  // namespace kvarn
