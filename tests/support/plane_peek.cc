// SPDX-License-Identifier: Apache-2.0
#include "support/plane_peek.h"

#include <algorithm>
#include <cstring>

#include "cache/plane.h"
#include "reference/reference_decoder.h"
#include "reference/reference_half.h"
#include "support/formats.h"

namespace kvarn_test {
namespace {

size_t ExactBytes(const kvarn_plane& plane) {
  return sizeof(uint16_t) * static_cast<size_t>(plane.Group() * plane.HeadDim());
}

}  // namespace

TileIs PeekState(const kvarn_plane* plane, const void* memory, int64_t tile) {
  return static_cast<TileIs>(plane->Tiles(memory)[tile].state);
}

std::vector<uint8_t> PeekRecordBytes(const kvarn_plane* plane, const void* memory, int64_t tile) {
  const uint8_t* record = plane->Record(memory, tile);
  return {record, record + plane->record.bytes};
}

kvarn_reference::Record PeekRecord(const kvarn_plane* plane, const void* memory, int64_t tile) {
  return kvarn_reference::FromCpu(ToShape(plane->config.format), plane->Record(memory, tile));
}

std::vector<uint16_t> PeekExact(const kvarn_plane* plane, const void* memory, int64_t tile) {
  const uint16_t* exact = plane->ExactTile(memory, plane->Tiles(memory)[tile].slot);
  return {exact, exact + ExactBytes(*plane) / sizeof(uint16_t)};
}

std::vector<uint8_t> LiveBytes(const kvarn_plane* plane, const void* memory) {
  const auto* bytes = static_cast<const uint8_t*>(memory);
  std::vector<uint8_t> live(bytes, bytes + plane->queries);
  for (int64_t tile = 0; tile < plane->n_tiles; ++tile) {
    const TileIs state = PeekState(plane, memory, tile);
    if (state == TileIs::kSealed) {
      const std::vector<uint8_t> record = PeekRecordBytes(plane, memory, tile);
      live.insert(live.end(), record.begin(), record.end());
    } else if (state == TileIs::kOpen) {
      const auto* exact = reinterpret_cast<const uint8_t*>(
          plane->ExactTile(memory, plane->Tiles(memory)[tile].slot));
      live.insert(live.end(), exact, exact + ExactBytes(*plane));
    }
  }
  return live;
}

std::vector<double> PeekRows(const kvarn_plane* plane, const void* memory, int64_t n_rows) {
  const int64_t group = plane->Group();
  const auto dim = static_cast<size_t>(plane->HeadDim());
  std::vector<double> rows(static_cast<size_t>(n_rows) * dim, 0.0);
  for (int64_t tile = 0; tile * group < n_rows; ++tile) {
    const auto first = static_cast<size_t>(tile * group) * dim;
    const auto count = static_cast<size_t>(std::min(group, n_rows - tile * group)) * dim;
    const TileIs state = PeekState(plane, memory, tile);
    if (state == TileIs::kSealed) {
      const std::vector<double> decoded = Decode(PeekRecord(plane, memory, tile));
      std::copy_n(decoded.begin(), count, rows.begin() + static_cast<ptrdiff_t>(first));
    } else if (state == TileIs::kOpen) {
      const uint16_t* exact = plane->ExactTile(memory, plane->Tiles(memory)[tile].slot);
      for (size_t i = 0; i < count; ++i) rows[first + i] = kvarn_reference::HalfToDouble(exact[i]);
    }
  }
  return rows;
}

void PoisonStores(const kvarn_plane* plane, void* memory, int fill) {
  std::memset(static_cast<uint8_t*>(memory) + plane->queries, fill, plane->bytes - plane->queries);
}

}  // namespace kvarn_test
