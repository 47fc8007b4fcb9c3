// SPDX-License-Identifier: Apache-2.0
//
// The exact rows of a warp: the next rows are loaded while these are worked on.
#pragma once

#include "cuda/attention/partial.cuh"
#include "cuda/attention/unit_cursor.cuh"

namespace kvarn::cuda {

// Where the rows of an exact unit lie.
struct ExactUnit {
  TilePlace place;
  int n_rows;
  int64_t row;
};
template <int kGroup, bool kGeneral>
__device__ __forceinline__ ExactUnit ExactUnitAt(const DecodeParams& p, const DecodePiece& piece,
                                                 int unit) {
  const bool sink = unit < piece.sink_units;
  const int after = (unit - piece.sink_units) * kExactUnitRows;
  const int chunk = after / kGroup;
  ExactUnit u;
  if (kGeneral && p.listed_tiles != nullptr) {
    const int64_t at =
        static_cast<int64_t>(piece.sequence) * p.blocks_stride + p.call.tile_table_stride + chunk;
    const TilePlace tile = p.listed_tiles[at];
    u.place = tile ^ (after % kGroup);  // its low bits are free: all 0 or, if plain, 1
    u.row = p.listed_places[at] + after % kGroup;
    u.n_rows = min(kExactUnitRows, piece.length - PositionOf(u.place));
    return u;
  }
  u.place = sink ? unit * kExactUnitRows : piece.first_position + after;
  u.n_rows = min(kExactUnitRows, piece.length - u.place);
  if (sink) {
    u.row = piece.sink_row + u.place;
  } else {
    // The piece knows the first two: few contexts have more.
    u.row = chunk == 0   ? piece.ring_row
            : chunk == 1 ? piece.next_ring_row
                         : RingRowOfTile(p.call, piece.sequence, u.place / kGroup);
    u.row += after % kGroup;
  }
  return u;
}

inline constexpr int kPrefetchUnits = 3;

template <int kDim>
__device__ __forceinline__ void PrefetchRows(const unsigned char* rows, int64_t stride, int n_rows,
                                             int lane) {
  constexpr int kLine = 128;  // bytes
  constexpr int kLines = (2 * kDim + kLine - 1) / kLine;
  for (int i = lane; i < n_rows * kLines; i += kWarpSize) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(rows + i / kLines * stride + i % kLines * kLine));
  }
}

// Query rows from first_row on, as many as the shape has; `operand` as RotateQueries has it.
template <typename Shape, bool kGeneral, typename Cursor, typename... Share>
__device__ __forceinline__ void AttendExact(const DecodeParams& p, uint2* operand, int first_row,
                                            int lane, const Share&... share) {
  using State = PieceState<Shape>;
  Cursor at(p, share...);
  const bool bf16 = p.call.dtype == KVARN_BF16;
  State state;
  while (!at.Done()) {
    const int piece_index = at.piece();
    const DecodePiece piece = at.Piece(p);
    state.Reset();
    const auto rules =
        RulesOf<State::kColumns>(p, piece.sequence, piece.length, at.kv_head(), first_row, lane);
    LoadQueries<Shape, kGeneral>(p, piece.sequence, at.kv_head(), first_row, operand, lane);
    const unsigned char* keys = static_cast<const unsigned char*>(p.call.exact_keys) +
                                at.kv_head() * p.call.exact_key_head_stride;
    const unsigned char* values = static_cast<const unsigned char*>(p.call.exact_values) +
                                  at.kv_head() * p.call.exact_value_head_stride;
    if constexpr (kGeneral) {
      keys += piece.sequence * p.call.exact_key_sequence_stride;
      values += piece.sequence * p.call.exact_value_sequence_stride;
    }
    // Those after the first, long before they are loaded: a warp has room for one unit only.
#pragma unroll 1
    for (int ahead = 1; ahead <= kPrefetchUnits; ++ahead) {
      const int index = at.unit() + ahead * at.Stride(p);
      if (index >= piece.first_unit + piece.n_units) break;
      const ExactUnit u = ExactUnitAt<Shape::kGroup, kGeneral>(p, piece, index);
      PrefetchRows<Shape::kKeyDim>(keys + u.row * p.call.exact_key_row_stride,
                                   p.call.exact_key_row_stride, u.n_rows, lane);
      PrefetchRows<Shape::kValueDim>(values + u.row * p.call.exact_value_row_stride,
                                     p.call.exact_value_row_stride, u.n_rows, lane);
    }
    ExactUnit unit = ExactUnitAt<Shape::kGroup, kGeneral>(p, piece, at.unit());
    RowFragments<Shape::kKeySteps> k;
    RowFragments<Shape::kValueTiles> v;
    k.Load(keys + unit.row * p.call.exact_key_row_stride, p.call.exact_key_row_stride, unit.n_rows,
           lane);
    v.Load(values + unit.row * p.call.exact_value_row_stride, p.call.exact_value_row_stride,
           unit.n_rows, lane);
    for (;;) {
      at.Next(p);
      const bool more = !at.Done() && at.piece() == piece_index;
      const ExactUnit next =
          more ? ExactUnitAt<Shape::kGroup, kGeneral>(p, piece, at.unit()) : unit;
      float score[Shape::kColumnTiles][4] = {};
      ScoreRows<Shape>(bf16, k, operand, lane, score);
      if (more) {
        k.Load(keys + next.row * p.call.exact_key_row_stride, p.call.exact_key_row_stride,
               next.n_rows, lane);
      }
      WeighRows<Shape, kGeneral>(p, unit.place, unit.n_rows, lane, rules, score, &state);
      AccumulateRows<Shape>(bf16, v, lane, score, &state);
      if (!more) break;
      v.Load(values + next.row * p.call.exact_value_row_stride, p.call.exact_value_row_stride,
             next.n_rows, lane);
      unit = next;
    }
    StorePartial<Shape>(p, Cursor::PartialOf(p, piece_index), true, first_row, lane, &state);
  }
}

}  // namespace kvarn::cuda
