// SPDX-License-Identifier: Apache-2.0
//
// The tiles that a block of query rows walks. With a tile table they are bits in shared memory, set
// at the start of the block: finding the next one is a few instructions, the same in all threads.
#pragma once

#include "cuda/prefill/block.cuh"

namespace kvarn::cuda {

enum TileSet { kRecordTiles, kExactTiles, kPlainTiles };

__device__ __forceinline__ uint32_t* TileBits(const PrefillParams& p, unsigned char* shared,
                                              TileSet set) {
  return reinterpret_cast<uint32_t*>(shared + p.tiles_at) + set * p.n_tile_words;
}

// Sets the bits of tiles that a query of the block sees, by the map of the mask if there is one. By
// all threads, who must meet before they are read.
template <typename Shape>
__device__ __forceinline__ void MarkTiles(const PrefillParams& p, const QueryBlock& block,
                                          unsigned char* shared, int warp, int lane) {
  const kvarn_cuda_decode& call = p.call.attention;
  const int last_row = min(block.first_row + Shape::kRows, block.n_rows) - 1;
  const int first = block.first_row / p.heads_per_kv / KVARN_CUDA_MAP_TOKENS;
  const int last = last_row / p.heads_per_kv / KVARN_CUDA_MAP_TOKENS;
  const int map_rows = (call.n_tokens + KVARN_CUDA_MAP_TOKENS - 1) / KVARN_CUDA_MAP_TOKENS;
  const uint8_t* map =
      call.mask_map + (int64_t{block.sequence} * map_rows + first) * call.mask_map_stride;
  const int32_t* table = call.tile_table + int64_t{block.sequence} * call.tile_table_stride;
#pragma unroll 1
  for (int word = warp; word < block.n_words; word += Shape::kWarps) {
    const int tile = 32 * word + lane;
    const bool exists = tile * Shape::kGroup <= block.high;
    const int place = exists ? table[tile] : static_cast<int>(KVARN_CUDA_TILE_EMPTY);
    unsigned any = KVARN_CUDA_MAP_SEEN;
    unsigned all = 0;
    if (exists && call.mask_map != nullptr) {
      any = 0;
      all = ~0U;
#pragma unroll 4
      for (int row = 0; row <= last - first; ++row) {
        const unsigned bits = map[int64_t{row} * call.mask_map_stride + tile];
        any |= bits;
        all &= bits;
      }
    }
    const bool seen = (any & KVARN_CUDA_MAP_SEEN) != 0;
    const bool whole = (tile + 1) * Shape::kGroup - 1 <= block.high;
    const unsigned records = __ballot_sync(0xFFFFFFFFU, seen && place == KVARN_CUDA_TILE_RECORD);
    const unsigned exact = __ballot_sync(0xFFFFFFFFU, seen && place >= 0);
    const unsigned plain = __ballot_sync(0xFFFFFFFFU, whole && (all & KVARN_CUDA_MAP_PLAIN) != 0);
    if (lane == 0) {
      TileBits(p, shared, kRecordTiles)[word] = records;
      TileBits(p, shared, kExactTiles)[word] = exact;
      TileBits(p, shared, kPlainTiles)[word] = plain;
    }
  }
}

// The first tile of a set from `tile` on, or -1.
__device__ __forceinline__ int NextTile(const PrefillParams& p, const QueryBlock& block,
                                        unsigned char* shared, TileSet set, int tile) {
  const uint32_t* bits = TileBits(p, shared, set);
  int word = tile / 32;
  if (word >= block.n_words) return -1;
  uint32_t left = bits[word] & (~0U << (tile % 32));
  while (left == 0) {
    if (++word >= block.n_words) return -1;
    left = bits[word];
  }
  return 32 * word + __ffs(static_cast<int>(left)) - 1;
}

__device__ __forceinline__ bool IsPlainTile(const PrefillParams& p, unsigned char* shared,
                                            int tile) {
  return (TileBits(p, shared, kPlainTiles)[tile / 32] >> (tile % 32) & 1U) != 0;
}

// Tiles that are read as records: the first one, or the one after `tile`; -1 is the end.
template <typename Shape>
__device__ __forceinline__ int FirstRecord(const PrefillParams& p, const QueryBlock& block,
                                           unsigned char* shared) {
  if (p.listed) return NextTile(p, block, shared, kRecordTiles, 0);
  const int begin = max(block.sink_end, FirstVisible(p, block.low)) / Shape::kGroup;
  return begin < block.record_end ? begin : -1;
}
__device__ __forceinline__ int RecordAfter(const PrefillParams& p, const QueryBlock& block,
                                           unsigned char* shared, int tile) {
  if (p.listed) return NextTile(p, block, shared, kRecordTiles, tile + 1);
  return tile + 1 < block.record_end ? tile + 1 : -1;
}
// Whether all rows of the block see all of a record.
template <typename Shape>
__device__ __forceinline__ bool RecordIsPlain(const PrefillParams& p, const QueryBlock& block,
                                              unsigned char* shared, int tile) {
  if (p.listed) return IsPlainTile(p, shared, tile);
  const int position = tile * Shape::kGroup;
  return position >= block.seen_records.first &&
         position + Shape::kGroup - 1 <= block.seen_records.last;
}

}  // namespace kvarn::cuda
