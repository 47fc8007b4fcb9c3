// SPDX-License-Identifier: Apache-2.0
//
// What one instance of the decode kernel for many query rows is compiled for: four warps (a
// warpgroup) work on one record, so that its codes are unpacked once for all rows.
#pragma once

#include <vector_types.h>

#include "cuda/attention/shape.h"
#include "cuda/common/panels.h"

namespace kvarn::cuda {

inline constexpr int kGroupWarps = 4;  // of a warpgroup

// Query rows of one KV head: kColumnTiles * 8 (row = token * heads_per_kv + head).
template <int kKeyDim_, int kValueDim_, int kKeyBits_, int kValueBits_, int kGroup_,
          int kColumnTiles_>
struct WideShape {
  // What one warp does alone: a column tile of queries, of exact rows.
  using Tile = DecodeShape<kKeyDim_, kValueDim_, kKeyBits_, kValueBits_, kGroup_, 1>;

  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kKeyBits = kKeyBits_;
  static constexpr int kValueBits = kValueBits_;
  static constexpr int kGroup = kGroup_;
  static constexpr int kColumnTiles = kColumnTiles_;
  static constexpr int kQueryRows = kRowsPerColumnTile * kColumnTiles;
  static constexpr int kWorkerWarps = kGroupWarps;

  // A product has 64 rows: tokens or channels. Warp w has the row tiles kParts * w onwards.
  static constexpr int kKeyParts = kGroup / 64;
  static constexpr int kValueParts = kValueDim / 64;
  static_assert(kKeyDim % 64 == 0 && kGroup % 64 == 0);
  static_assert(kValueParts == 1 || kValueParts == 2 || kValueParts == 4);

  static constexpr RecordLayout kKey = Tile::kKey;
  static constexpr RecordLayout kValue = Tile::kValue;

  // Shared memory of a warpgroup, in bytes from its start.
  static constexpr size_t kValueBuffer = Tile::kValueBuffer;
  static constexpr int kValueBuffers = 2;
  static constexpr size_t kKeyAt = 0;
  static constexpr size_t kValueAt = Tile::kKeyBuffer;
  static constexpr size_t kFoldedAt = AlignUp(kValueAt + kValueBuffers * kValueBuffer, 1024);
  static constexpr size_t kWeightAt = kFoldedAt + PanelBytes(kQueryRows) * PanelCount(kKeyDim);
  static constexpr size_t kQueryAt = kWeightAt + PanelBytes(kQueryRows) * PanelCount(kGroup);
  static constexpr size_t kTileQueryBytes = Tile::kQueryBytes;
  static constexpr size_t kBalanceAt = kQueryAt + kColumnTiles * kTileQueryBytes;
  static constexpr size_t kColumnsAt = kBalanceAt + kGroupWarps * Tile::kBalanceBytes;
  // WideColumns and, with options, ColumnRules<1> of each row.
  static constexpr size_t kRulesAt = kColumnsAt + 4 * (4 + kGroupWarps) * kQueryRows;
  static constexpr size_t kBarrierAt = kRulesAt + 32 * kQueryRows;
  static constexpr size_t kWorkerBytes = AlignUp(kBarrierAt + 64, 1024);

  static constexpr int kFits = static_cast<int>(kSharedLimit / kWorkerBytes);
  static constexpr int kMost = kColumnTiles > 4 || kValueParts > 2 ? 2 : 3;  // by registers
  static constexpr int kWarps = kFits < kMost ? kFits : kMost;               // workers of a CTA
  static_assert(kWarps >= 1);
  static constexpr int kThreads = kWarps * kWorkerWarps * kWarpSize;
  static constexpr int kRegisters = kWarps == 3 ? 168 : 255;
  static constexpr size_t kSharedBytes = kWarps * kWorkerBytes;
};

// What the threads of a warpgroup share about query rows.
template <typename Shape>
struct WideColumns {
  float begin[Shape::kQueryRows];   // sum of the folded query: X0 but for a factor
  float offset[Shape::kQueryRows];  // Cz
  float unit[Shape::kQueryRows];    // log2 of the softmax weight for a unit of product
  float top[Shape::kQueryRows];     // the running maximum, log2
  // By pairs of rows, as a thread has them: sums or maxima of each warp.
  float2 part[Shape::kQueryRows / 2][kGroupWarps];
};

}  // namespace kvarn::cuda
