// SPDX-License-Identifier: Apache-2.0
//
// Records on their way into shared memory.
#pragma once

#include "cuda/prefill/block.cuh"
#include "cuda/prefill/shared_memory.cuh"

namespace kvarn::cuda {

// Copies the record pair of a tile.
template <typename Shape>
__device__ __forceinline__ void CopyRecords(const PrefillParams& p, const QueryBlock& block,
                                            int tile, uint32_t to) {
  const kvarn_cuda_decode& call = p.call.attention;
  const int64_t sequence = block.sequence;
  const int64_t id = call.block_table == nullptr
                         ? tile
                         : call.block_table[sequence * call.block_table_stride + tile];
  const unsigned char* key = static_cast<const unsigned char*>(call.key_records) +
                             id * call.key_block_stride + block.kv_head * call.key_head_stride +
                             sequence * call.key_sequence_stride;
  const unsigned char* value =
      static_cast<const unsigned char*>(call.value_records) + id * call.value_block_stride +
      block.kv_head * call.value_head_stride + sequence * call.value_sequence_stride;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 4
  for (int at = 16 * thread; at < p.key_bytes; at += 16 * Shape::kThreads) {
    CopyAsync(to + at, key + at, true);
  }
#pragma unroll 4
  for (int at = 16 * thread; at < p.value_bytes; at += 16 * Shape::kThreads) {
    CopyAsync(to + p.key_bytes + at, value + at, true);
  }
  CommitCopies();
}

// Whether the 16 bytes of s that this thread has copied differ from those in use, which they
// become.
template <typename Shape>
__device__ __forceinline__ bool BalanceChanges(const PrefillParams& p, const unsigned char* record,
                                               unsigned char* in_use, bool first) {
  constexpr int kPieces = Shape::kKeyDim / 16;
  const int piece =
      (static_cast<int>(threadIdx.x) + Shape::kThreads - p.key_balance_at / 16 % Shape::kThreads) %
      Shape::kThreads;
  if (piece >= kPieces) return first;
  const uint4 now = *reinterpret_cast<const uint4*>(record + p.key_balance_at + 16 * piece);
  uint4* used = reinterpret_cast<uint4*>(in_use) + piece;
  const bool same = now.x == used->x && now.y == used->y && now.z == used->z && now.w == used->w;
  *used = now;
  return first || !same;
}

}  // namespace kvarn::cuda
