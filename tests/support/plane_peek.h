// SPDX-License-Identifier: Apache-2.0
//
// What a plane's memory holds, tile by tile, without the rounding of kvarn_plane_read. The only
// test code that knows the plane's private tables.
#ifndef KVARN_TESTS_SUPPORT_PLANE_PEEK_H_
#define KVARN_TESTS_SUPPORT_PLANE_PEEK_H_

#include <optional>
#include <vector>

#include "kvarn/kvarn.h"
#include "reference/reference_record.h"

namespace kvarn_test {

enum class TileIs { kEmpty, kOpen, kSealed };

TileIs PeekState(const kvarn_plane* plane, const void* memory, int64_t tile);

// Bytes of a sealed tile's record, in order `cpu`.
std::vector<uint8_t> PeekRecordBytes(const kvarn_plane* plane, const void* memory, int64_t tile);
kvarn_reference::Record PeekRecord(const kvarn_plane* plane, const void* memory, int64_t tile);

// fp16 [group][head_dim] of an open tile.
std::vector<uint16_t> PeekExact(const kvarn_plane* plane, const void* memory, int64_t tile);

// The bytes of the plane that mean something: tables, query rows, exact tiles in use, records of
// sealed tiles. Two planes with equal live bytes behave the same.
std::vector<uint8_t> LiveBytes(const kvarn_plane* plane, const void* memory);

// Rows 0..n_rows-1 in double: exact rows as stored, sealed ones decoded without rounding, others 0.
std::vector<double> PeekRows(const kvarn_plane* plane, const void* memory, int64_t n_rows);

// Sets every byte outside the tables to `fill`: slots and records of an empty plane.
void PoisonStores(const kvarn_plane* plane, void* memory, int fill);

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_PLANE_PEEK_H_
