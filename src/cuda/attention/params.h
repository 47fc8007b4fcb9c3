// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the decode kernels, and how the work of a call is cut: shared by planner, main
// kernel and combine. Pointers are device memory.
//
// A *unit* is one record pair (K and V of one tile and head) or kExactUnitRows exact rows. A
// *segment* is the units of one kind of one sequence and head group, a *piece* the part of a
// segment that one CTA does. CTAs get equal shares of the cost of all units, in the order of the
// segments.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "kvarn/kvarn_cuda.h"

#ifdef __CUDACC__
#define KVARN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define KVARN_HOST_DEVICE inline
#endif

namespace kvarn::cuda {

enum UnitKind : int32_t { kRecordUnits = 0, kExactUnits = 1, kUnitKinds = 2 };

// What the planner found out about a sequence.
struct DecodeSequence {
  int32_t length;      // rows visible to the last query token
  int32_t first_tile;  // first tile kept as a record
  int32_t n_records;
  int32_t n_exact;     // exact units
  int32_t sink_units;  // of them before the records
  int32_t sink_row;    // exact row of position 0
  // Exact rows where the chunks of the first tile that is no record, and of the next one, begin.
  int32_t ring_row, next_ring_row;
};

struct alignas(16) DecodePiece {
  int32_t sequence;
  int32_t first_head;  // KV head of warp 0
  int32_t kind;
  int32_t first_unit;
  int32_t n_units;
  int32_t first_position;  // of unit 0 of the segment; exact: of the first unit after the sink
  int32_t length;
  int32_t sink_units, sink_row, ring_row;
  int32_t next_ring_row;
  int32_t reserved;
};

// Where a CTA begins: its pieces, copies of the first ones and, if the first is of records, the
// blocks of its first units. So one read finds the first work of every warp.
inline constexpr int kSharePieces = 2;
struct alignas(16) DecodeShare {
  int32_t first_piece, end_piece;
  int32_t reserved[2];
  DecodePiece pieces[kSharePieces];
  int32_t blocks[8];  // as many as a CTA has warps at most
};

struct DecodeParams {
  kvarn_cuda_decode call;
  int32_t heads_per_kv;
  int32_t query_rows;    // n_tokens * heads_per_kv
  int32_t row_to_token;  // token = row * row_to_token >> 16
  int32_t head_shift;    // log2 of the KV heads that the warps of a CTA take side by side
  int32_t n_groups;
  int32_t n_segments;
  int32_t n_ctas;
  int32_t n_warps;       // of a CTA
  int32_t partial_rows;  // query rows of a partial, padding included
  int32_t record_cost;
  int32_t exact_cost;
  int32_t segment_cost;  // of beginning one: queries, first copies, the partial
  // Blocks of the records of a sequence by unit: the call's table or the planner's list.
  const int32_t* blocks;
  int32_t blocks_stride;
  // Workspace.
  DecodeSequence* sequences;  // [n_sequences]
  // With a tile table: the record tiles of a sequence that a query sees, then from
  // tile_table_stride on its exact ones, as TilePlace has them, and the block or exact row of each.
  // Both [n_sequences][2 * tile_table_stride], or null.
  int32_t* listed_tiles;
  int32_t* listed_places;
  DecodePiece* pieces;      // [n_ctas + n_segments] by segment, then CTA: so also by CTA
  DecodeShare* shares;      // [n_ctas]
  int32_t* segment_pieces;  // [n_segments + 1]
  int64_t* prefix;          // [n_segments + 1] cost of all segments before
  int32_t* filled;          // [n_segments + 1] segments before that have units
  float2* partial_sums;     // [pieces][n_warps][partial_rows] maximum (log2), sum
  float* partial_outs;      // [pieces][n_warps][partial_rows][Dv]
  // Rotations (codec/rotation.h); small matrices [small_dim][small_dim] or null.
  const int8_t* key_small;
  const int8_t* value_small;
  int32_t value_small_dim;
  float key_rotation_scale;
  float value_rotation_scale;
  int32_t cluster_ctas;   // of a KV head of a sequence, where clusters do the call (cluster/); or 0
  int32_t cluster_shift;  // log2 of them
};

KVARN_HOST_DEVICE int FirstPositionOf(const DecodeSequence& s, int kind, int group) {
  return (kind == kRecordUnits ? s.first_tile : s.first_tile + s.n_records) * group;
}

// A piece, still without units, of a kind of a sequence.
KVARN_HOST_DEVICE DecodePiece PieceOf(const DecodeSequence& s, int sequence, int kind,
                                      int first_position) {
  DecodePiece piece = {};
  piece.sequence = sequence;
  piece.kind = kind;
  piece.first_position = first_position;
  piece.length = s.length;
  piece.sink_units = s.sink_units;
  piece.sink_row = s.sink_row;
  piece.ring_row = s.ring_row;
  piece.next_ring_row = s.next_ring_row;
  return piece;
}

// Exact row where the chunk of a tile begins in the ring.
KVARN_HOST_DEVICE int RingRowOfTile(const kvarn_cuda_decode& call, int sequence, int tile) {
  const int chunks = call.ring_rows / call.key_format.group;
  return call.ring_base[static_cast<int64_t>(sequence) * call.ring_base_stride + tile % chunks];
}

// A place in a sequence: its position, or ~position in a *plain* tile: all queries see all of its
// rows, with nothing added.
using TilePlace = int32_t;
KVARN_HOST_DEVICE bool IsPlain(TilePlace place) { return place < 0; }
KVARN_HOST_DEVICE int PositionOf(TilePlace place) { return place < 0 ? ~place : place; }

// Where a record unit of a segment that begins at first_position begins.
KVARN_HOST_DEVICE TilePlace RecordPlace(const DecodeParams& p, int sequence, int first_position,
                                        int unit, int group) {
  if (p.listed_tiles == nullptr) return first_position + unit * group;
  return p.listed_tiles[static_cast<int64_t>(sequence) * p.blocks_stride + unit];
}

struct SegmentIndex {
  int32_t sequence;
  int32_t group;
  int32_t kind;
};
KVARN_HOST_DEVICE SegmentIndex SegmentAt(const DecodeParams& p, int segment) {
  const int pair = segment / kUnitKinds;
  return SegmentIndex{pair / p.n_groups, pair % p.n_groups, segment % kUnitKinds};
}
KVARN_HOST_DEVICE int UnitCost(const DecodeParams& p, int kind) {
  return kind == kRecordUnits ? p.record_cost : p.exact_cost;
}
KVARN_HOST_DEVICE int UnitCount(const DecodeSequence& s, int kind) {
  return kind == kRecordUnits ? s.n_records : s.n_exact;
}

// Divisions are slow on the device. Exact for rows and heads_per_kv up to kMaxQueryRows.
inline constexpr int kMaxQueryRows = 128;
inline int32_t RowToToken(int heads_per_kv) { return (65536 + heads_per_kv - 1) / heads_per_kv; }
KVARN_HOST_DEVICE int TokenOfRow(const DecodeParams& p, int row) {
  return (row * p.row_to_token) >> 16;
}

// A unit belongs to the CTA in whose share its middle lies.
KVARN_HOST_DEVICE int64_t ShareBegin(int64_t total, int cta, int n_ctas) {
  return (total * cta + n_ctas - 1) / n_ctas;
}
// First unit of a segment whose units begin at cost `prefix` whose middle is at or after `share`.
KVARN_HOST_DEVICE int FirstUnitAtOrAfter(int64_t share, int64_t prefix, int cost, int count) {
  const int64_t left = share - prefix - cost / 2;
  if (left <= 0) return 0;
  const int64_t unit = (left + cost - 1) / cost;
  return unit < count ? static_cast<int>(unit) : count;
}

KVARN_HOST_DEVICE const DecodePiece& PieceOfShare(const DecodeParams& p, const DecodeShare& share,
                                                  int piece) {
  const int index = piece - share.first_piece;
  return index < kSharePieces ? share.pieces[index] : p.pieces[piece];
}

// Where a warp leaves its part of a piece.
KVARN_HOST_DEVICE int64_t PartialSlot(const DecodeParams& p, int piece, int warp) {
  return static_cast<int64_t>(piece) * p.n_warps + warp;
}

}  // namespace kvarn::cuda
