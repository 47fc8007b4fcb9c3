// SPDX-License-Identifier: Apache-2.0
//
// What one instance of the prefill kernel is compiled for, and where its shared memory goes. Bit
// widths, options and types are arguments: they do not change the loops.
#pragma once

#include <cstddef>

#include "cuda/common/panels.h"
#include "format/record_layout.h"

namespace kvarn::cuda {

inline constexpr int kWarpRows = 16;   // query rows of a warp
inline constexpr int kStageRows = 64;  // rows of K and V that are multiplied at once

// kAhead: a CTA decodes the next stage of a record while it multiplies this one, which asks for two
// stages and two record pairs in shared memory. Else two CTAs take turns on a multiprocessor.
template <int kKeyDim_, int kValueDim_, int kGroup_, bool kAhead_ = false>
struct PrefillShape {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kGroup = kGroup_;
  static constexpr bool kAhead = kAhead_;
  static_assert(kKeyDim % 16 == 0 && kValueDim % 16 == 0);

  static constexpr int kRows = kAhead ? 192 : 128;  // query rows of a CTA
  static constexpr int kWarps = kRows / kWarpRows;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kCtas = !kAhead && kValueDim <= 128 ? 2 : 1;  // of a multiprocessor
  static constexpr int kStageBuffers = kAhead ? 2 : 1;
  static constexpr int kRecordBuffers = kAhead ? 2 : 1;
  // Pairs of an item of keys (record_tile.cuh); at G = 128 half of them are of a stage.
  static constexpr int kKeyItemPairs = kAhead ? 8 : 16;

  static constexpr int kKeySteps = kKeyDim / 16;
  static constexpr int kValueTiles = kValueDim / 8;  // of 8 channels
  static constexpr int kStages = kGroup / kStageRows;

  static constexpr int kQueryBytes = PanelBytes(kRows) * PanelCount(kKeyDim);
  static constexpr int kKeyBytes = PanelBytes(kStageRows) * PanelCount(kKeyDim);
  // Exact V lies as [position][channel], V of a record as [channel][slot].
  static constexpr int kExactValueBytes = PanelBytes(kStageRows) * PanelCount(kValueDim);
  static constexpr int kRecordValueBytes = PanelBytes(kValueDim);
  static constexpr int kValueBytes =
      kExactValueBytes > kRecordValueBytes ? kExactValueBytes : kRecordValueBytes;
  static constexpr int kQueryAt = 0;
  static constexpr int kKeyAt = kQueryAt + kQueryBytes;
  static constexpr int kValueAt = kKeyAt + kKeyBytes;
  static_assert(kKeyAt % 1024 == 0 && kValueAt % 1024 == 0);  // descriptors of matrices ask for it
  static constexpr int kStageBytes = kKeyBytes + kValueBytes;
  static constexpr int kUnitAt = kKeyAt + kStageBuffers * kStageBytes;  // float [kRows]
  static constexpr int kBalanceAt = kUnitAt + 4 * kRows;
  static constexpr int kBlockAt = kBalanceAt + RoundUp(kKeyDim, 128);  // QueryBlock
  static constexpr int kRecordAt = kBlockAt + 128;
  // kRecordBuffers times a K record and a V record follow.

  // Where outputs change their order: 8 rows of fp32 of each warp, in the place of K and V.
  static constexpr int kScratchPitch = RoundUp(4 * kValueDim, 128);
  static_assert(kWarps * 8 * kScratchPitch <= kStageBuffers * kStageBytes);
};

}  // namespace kvarn::cuda
