// SPDX-License-Identifier: Apache-2.0
//
// What one instance of the prefill kernel is compiled for, and where its shared memory goes. Bit
// widths, options and types are arguments: they do not change the loops.
#pragma once

#include <cstddef>

#include "format/record_layout.h"

namespace kvarn::cuda {

inline constexpr int kPrefillRows = 128;  // query rows of a CTA: row = token * heads_per_kv + head
inline constexpr int kStageRows = 64;     // rows of K and V that are in shared memory at once

template <int kKeyDim_, int kValueDim_, int kGroup_>
struct PrefillShape {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kGroup = kGroup_;
  static_assert(kKeyDim % 16 == 0 && kValueDim % 16 == 0);

  // A warp has 32 query rows, so that a fragment of K or V serves two products, where the output
  // of so many fits its registers.
  static constexpr int kRowTiles = kValueDim <= 128 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kWarps = kPrefillRows / kWarpRows;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kCtas = kRowTiles == 2 ? 2 : 1;  // of a multiprocessor

  static constexpr int kKeySteps = kKeyDim / 16;
  static constexpr int kValueTiles = kValueDim / 8;  // of 8 channels
  static constexpr int kStages = kGroup / kStageRows;

  // Bytes from row to row: whole groups of eight 16-byte chunks, the unit of the swizzle.
  static constexpr int kKeyPitch = RoundUp(2 * kKeyDim, 128);
  static constexpr int kValuePitch = RoundUp(2 * kValueDim, 128);  // exact V: [position][channel]
  static constexpr int kChannelPitch = 2 * kStageRows;             // record V: [channel][slot]

  static constexpr int kQueryBytes = kPrefillRows * kKeyPitch;
  static constexpr int kKeyBytes = kStageRows * kKeyPitch;
  static constexpr int kExactValueBytes = kStageRows * kValuePitch;
  static constexpr int kRecordValueBytes = kValueDim * kChannelPitch;
  static constexpr int kValueBytes =
      kExactValueBytes > kRecordValueBytes ? kExactValueBytes : kRecordValueBytes;
  static constexpr int kQueryAt = 0;
  static constexpr int kKeyAt = kQueryAt + kQueryBytes;
  static constexpr int kValueAt = kKeyAt + kKeyBytes;
  static constexpr int kUnitAt = kValueAt + kValueBytes;  // float [kPrefillRows]
  static constexpr int kBalanceAt = kUnitAt + 4 * kPrefillRows;
  static constexpr int kRecordAt = kBalanceAt + RoundUp(kKeyDim, 128);
  // A K record and a V record follow.

  // Where outputs change their order: 8 rows of fp32 of a warp, in the place of its queries.
  static constexpr int kScratchPitch = RoundUp(4 * kValueDim, 128);
  static_assert(8 * kScratchPitch <= kWarpRows * kKeyPitch);
};

}  // namespace kvarn::cuda
