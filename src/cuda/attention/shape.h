// SPDX-License-Identifier: Apache-2.0
//
// What one instance of the decode kernel is compiled for, and what follows from it.
#pragma once

#include <cstddef>

#include "format/record_layout.h"

namespace kvarn::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr int kRowsPerColumnTile = 8;  // query rows of one m16n8k16 product
inline constexpr int kExactUnitRows = 16;     // rows of one unit of exact work
inline constexpr int kMaxDecodeWarps = 8;
inline constexpr int kMaxClusterCtas = 16;  // sm_90 allows no more

constexpr size_t AlignUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

inline constexpr size_t kSharedLimit = size_t{227} * 1024;  // of a CTA on sm_90

// Query rows of one KV head: kColumnTiles * 8 (row = token * heads_per_kv + head).
template <int kKeyDim_, int kValueDim_, int kKeyBits_, int kValueBits_, int kGroup_,
          int kColumnTiles_>
struct DecodeShape {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kKeyBits = kKeyBits_;
  static constexpr int kValueBits = kValueBits_;
  static constexpr int kGroup = kGroup_;
  static constexpr int kColumnTiles = kColumnTiles_;
  static constexpr int kQueryRows = kRowsPerColumnTile * kColumnTiles;
  static constexpr int kWorkerWarps = 1;
  static_assert(kKeyDim % 16 == 0 && kValueDim % 16 == 0);

  static constexpr int kTokenTiles = kGroup / 16;
  static constexpr int kKeySteps = kKeyDim / 16;
  static constexpr int kValueTiles = kValueDim / 16;

  static constexpr RecordLayout kKey =
      MakeRecordLayout({KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, kKeyBits, kGroup, kKeyDim});
  static constexpr RecordLayout kValue = MakeRecordLayout(
      {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, kValueBits, kGroup, kValueDim});

  static constexpr size_t kKeyBuffer = AlignUp(kKey.bytes, 128);
  static constexpr size_t kValueBuffer = AlignUp(kValue.bytes, 128);

  // Shared memory of one warp, in bytes from its start. K has one buffer: it is free while V is
  // multiplied. V has two where they fit.
  static constexpr size_t kQueryBytes = size_t{2} * kQueryRows * kKeyDim;
  static constexpr size_t kBalanceBytes = size_t{4} * kKeyDim;
  static constexpr size_t WarpBytes(int value_buffers) {
    return kKeyBuffer + value_buffers * kValueBuffer + kQueryBytes + kBalanceBytes + 128;
  }
  static constexpr int kValueBuffers = kMaxDecodeWarps * WarpBytes(2) <= kSharedLimit ? 2 : 1;
  static constexpr size_t kWarpBytes = WarpBytes(kValueBuffers);
  static constexpr int kFits = static_cast<int>(kSharedLimit / kWarpBytes);
  static constexpr int kWarps = kFits >= kMaxDecodeWarps ? kMaxDecodeWarps : kFits / 2 * 2;
  static_assert(kWarps >= 2);
  static constexpr int kThreads = kWarps * kWarpSize;
  // Of a thread: with 200, a CTA of the combine kernel (80) finds room beside one of 256 threads.
  static constexpr int kRegisters = kColumnTiles == 1 && kKeyDim + kValueDim <= 256 ? 200 : 255;
  static constexpr size_t kSharedBytes = kWarps * kWarpBytes;
  static constexpr size_t kKeyAt = 0;
  static constexpr size_t kValueAt = kKeyBuffer;
  static constexpr size_t kQueryAt = kValueAt + kValueBuffers * kValueBuffer;
  static constexpr size_t kBalanceAt = kQueryAt + kQueryBytes;
  static constexpr size_t kBarrierAt = kBalanceAt + kBalanceBytes;
};

}  // namespace kvarn::cuda
