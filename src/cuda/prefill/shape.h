// SPDX-License-Identifier: Apache-2.0
//
// What one instance of the prefill kernel is compiled for, and where its shared memory goes. Bit
// widths, options and types are arguments: they do not change the loops.
#pragma once

#include <cstddef>

#include "cuda/common/panels.h"
#include "format/record_layout.h"

namespace kvarn::cuda {

inline constexpr int kPrefillRows = 128;  // query rows of a CTA: row = token * heads_per_kv + head
inline constexpr int kWarpRows = 16;      // query rows of a warp
inline constexpr int kPrefillWarps = kPrefillRows / kWarpRows;
inline constexpr int kPrefillThreads = 32 * kPrefillWarps;
inline constexpr int kStageRows = 64;  // rows of K and V that are in shared memory at once

template <int kKeyDim_, int kValueDim_, int kGroup_>
struct PrefillShape {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kGroup = kGroup_;
  static_assert(kKeyDim % 16 == 0 && kValueDim % 16 == 0);

  static constexpr int kCtas = kValueDim <= 128 ? 2 : 1;  // of a multiprocessor

  static constexpr int kKeySteps = kKeyDim / 16;
  static constexpr int kValueTiles = kValueDim / 8;  // of 8 channels
  static constexpr int kStages = kGroup / kStageRows;

  static constexpr int kQueryBytes = PanelBytes(kPrefillRows) * PanelCount(kKeyDim);
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
  static constexpr int kUnitAt = kValueAt + kValueBytes;      // float [kPrefillRows]
  static constexpr int kBalanceAt = kUnitAt + 4 * kPrefillRows;
  static constexpr int kBlockAt = kBalanceAt + RoundUp(kKeyDim, 128);  // QueryBlock
  static constexpr int kRecordAt = kBlockAt + 128;
  // A K record and a V record follow.

  // Where outputs change their order: 8 rows of fp32 of each warp, in the place of K and V.
  static constexpr int kScratchPitch = RoundUp(4 * kValueDim, 128);
  static_assert(kPrefillWarps * 8 * kScratchPitch <= kKeyBytes + kValueBytes);
};

}  // namespace kvarn::cuda
