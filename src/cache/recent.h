// SPDX-License-Identifier: Apache-2.0
//
// Exact copies of the tiles of one plane that were sealed while a call wrote its rows, so that the
// query tokens before that moment still read them exact (docs/architecture.md section 4). One flat
// block, like a plane: header, entries, copies.
#ifndef KVARN_CACHE_RECENT_H_
#define KVARN_CACHE_RECENT_H_

#include <cstddef>
#include <cstdint>

#include "cache/plane.h"

namespace kvarn {

struct RecentEntry {
  int64_t tile;
  int64_t index;  // of the write, within its call, during which the tile was sealed
};

struct RecentHeader {
  int32_t capacity;
  int32_t count;
  uint64_t reserved[7];

  // [capacity], the first `count` in use, index ascending.
  RecentEntry* Entries() { return reinterpret_cast<RecentEntry*>(this + 1); }
  const RecentEntry* Entries() const { return reinterpret_cast<const RecentEntry*>(this + 1); }
};
static_assert(sizeof(RecentHeader) == 64);

constexpr size_t RecentCopiesAt(int32_t capacity) {
  const size_t end = sizeof(RecentHeader) + static_cast<size_t>(capacity) * sizeof(RecentEntry);
  return (end + 63) / 64 * 64;
}

// fp16 [G][D] of entry i.
inline const uint16_t* RecentTile(const kvarn_plane& plane, const RecentHeader* recent, int i) {
  const size_t size = static_cast<size_t>(plane.Group()) * static_cast<size_t>(plane.HeadDim());
  return reinterpret_cast<const uint16_t*>(reinterpret_cast<const uint8_t*>(recent) +
                                           RecentCopiesAt(recent->capacity)) +
         static_cast<size_t>(i) * size;
}

size_t RecentBytes(const kvarn_plane& plane, int32_t capacity);
// Does nothing if the block is full: the tile is then read as a record by every token of the call.
void KeepRecent(const kvarn_plane& plane, RecentHeader* recent, int64_t tile, int64_t index,
                const uint16_t* exact);

}  // namespace kvarn
#endif  // KVARN_CACHE_RECENT_H_
