// SPDX-License-Identifier: Apache-2.0
#include "cache/recent.h"

#include <cstring>

namespace kvarn {

size_t RecentBytes(const kvarn_plane& plane, int32_t capacity) {
  const size_t tile =
      sizeof(uint16_t) * static_cast<size_t>(plane.Group()) * static_cast<size_t>(plane.HeadDim());
  return RecentCopiesAt(capacity) + static_cast<size_t>(capacity) * tile;
}

void KeepRecent(const kvarn_plane& plane, RecentHeader* recent, int64_t tile, int64_t index,
                const uint16_t* exact) {
  if (recent->count == recent->capacity) return;
  const int i = recent->count++;
  recent->Entries()[i] = {tile, index};
  const size_t size = static_cast<size_t>(plane.Group()) * static_cast<size_t>(plane.HeadDim());
  std::memcpy(const_cast<uint16_t*>(RecentTile(plane, recent, i)), exact, size * sizeof(uint16_t));
}

}  // namespace kvarn
