// SPDX-License-Identifier: Apache-2.0
//
// The one place with byte offsets of a record (docs/format.md section 3). Everything that needs a
// size or an offset asks here; no number of bytes is written anywhere else.
#ifndef KVARN_FORMAT_RECORD_LAYOUT_H_
#define KVARN_FORMAT_RECORD_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kvarn/kvarn.h"

namespace kvarn {

inline constexpr int kMinHeadDim = 32;
inline constexpr int kMaxHeadDim = 576;
inline constexpr int kMaxGroup = 128;

// Order `cpu`: codes lie in strips of 16 lanes; a unit of 64 bytes holds, for each lane, four bytes
// of contraction indices, 8/bits of them a byte.
inline constexpr int kLanesPerStrip = 16;
inline constexpr int kUnitBytes = 64;

constexpr int RoundUp(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr bool IsLegal(const kvarn_format& format) {
  const bool role = format.role == KVARN_KEY || format.role == KVARN_VALUE;
  const bool mode = format.mode == KVARN_BALANCED || format.mode == KVARN_PUBLISHED;
  const bool order = format.order == KVARN_ORDER_PORTABLE || format.order == KVARN_ORDER_CPU ||
                     format.order == KVARN_ORDER_CUDA;
  const bool bits = format.bits == 2 || format.bits == 3 || format.bits == 4 || format.bits == 8;
  const bool group = format.group == 64 || format.group == 128;
  const bool dim =
      format.head_dim >= kMinHeadDim && format.head_dim <= kMaxHeadDim && format.head_dim % 8 == 0;
  return role && mode && order && bits && group && dim;
}

// Bytes of one bit plane of `bits` (1, 2, 4 or 8) in order `cpu`.
constexpr size_t CpuPlaneBytes(int bits, int lanes, int contraction) {
  const int strips = RoundUp(lanes, kLanesPerStrip) / kLanesPerStrip;
  const int per_unit = 32 / bits;
  const int units = RoundUp(contraction, per_unit) / per_unit;
  return static_cast<size_t>(strips) * static_cast<size_t>(units) * kUnitBytes;
}

// Order `cuda`: fragments of m16n8k16 matrix instructions. A *pair* is one 16 x 16 block of codes;
// a unit of 512 bytes (16 bytes for each of 32 threads) holds 16 / bits pairs.
inline constexpr int kFragment = 16;
inline constexpr int kCudaUnitBytes = 512;

constexpr int CudaPairsPerUnit(int bits) { return 16 / bits; }

// Bytes of one bit plane of `bits` (1, 2, 4 or 8) in order `cuda`.
constexpr size_t CudaPlaneBytes(int bits, int lanes, int contraction) {
  const int pairs =
      (RoundUp(lanes, kFragment) / kFragment) * (RoundUp(contraction, kFragment) / kFragment);
  const int units = RoundUp(pairs, CudaPairsPerUnit(bits)) / CudaPairsPerUnit(bits);
  return static_cast<size_t>(units) * kCudaUnitBytes;
}

constexpr size_t PlaneBytes(kvarn_order order, int bits, int lanes, int contraction) {
  return order == KVARN_ORDER_CPU ? CpuPlaneBytes(bits, lanes, contraction)
                                  : CudaPlaneBytes(bits, lanes, contraction);
}

// Offsets in bytes from the start of a record, and the axes of the attention product: K codes are
// contracted over channels, V codes over tokens.
struct RecordLayout {
  size_t codes = 0;     // K: [D][G] codes; V: [G][D] codes (portable), strips (cpu)
  size_t scale = 0;     // a, fp16: K [D], V [G]
  size_t zero = 0;      // z, fp16: K [D], V [G]
  size_t other = 0;     // K: t [G], V: C [D], fp16
  size_t balance = 0;   // balanced K only: e [D], int8
  size_t bytes = 0;     // whole record, padding included
  int lanes = 0;        // K: G, V: D
  int contraction = 0;  // K: D, V: G
  bool has_balance = false;
};

// `format` must be legal.
constexpr RecordLayout MakeRecordLayout(const kvarn_format& format) {
  const bool key = format.role == KVARN_KEY;
  const int dim = format.head_dim;
  const int group = format.group;
  RecordLayout layout;
  layout.lanes = key ? group : dim;
  layout.contraction = key ? dim : group;
  layout.has_balance = key && format.mode == KVARN_BALANCED;
  size_t code_bytes =
      static_cast<size_t>(dim) * static_cast<size_t>(group) * static_cast<size_t>(format.bits) / 8;
  if (format.order != KVARN_ORDER_PORTABLE) {
    code_bytes = format.bits == 3
                     ? PlaneBytes(format.order, 2, layout.lanes, layout.contraction) +
                           PlaneBytes(format.order, 1, layout.lanes, layout.contraction)
                     : PlaneBytes(format.order, format.bits, layout.lanes, layout.contraction);
  }
  const size_t dim_vector = sizeof(uint16_t) * static_cast<size_t>(dim);
  const size_t group_vector = sizeof(uint16_t) * static_cast<size_t>(group);
  layout.codes = 0;
  if (key) {
    layout.scale = code_bytes;
    layout.zero = layout.scale + dim_vector;
    layout.other = layout.zero + dim_vector;
    layout.balance = layout.other + group_vector;
    layout.bytes = layout.balance + (layout.has_balance ? static_cast<size_t>(dim) : 0);
  } else {
    layout.other = code_bytes;
    layout.scale = layout.other + dim_vector;
    layout.zero = layout.scale + group_vector;
    layout.balance = layout.zero + group_vector;
    layout.bytes = layout.balance;
  }
  if (format.order != KVARN_ORDER_PORTABLE) {
    layout.bytes = (layout.bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  }
  return layout;
}

// The published record sizes (K and V of a tile), and ours with the balance bytes.
static_assert(MakeRecordLayout({KVARN_KEY, KVARN_PUBLISHED, KVARN_ORDER_PORTABLE, 4, 128, 128})
                  .bytes == 8960);
static_assert(MakeRecordLayout({KVARN_VALUE, KVARN_PUBLISHED, KVARN_ORDER_PORTABLE, 2, 128, 128})
                  .bytes == 4864);
static_assert(MakeRecordLayout({KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CPU, 4, 128, 128}).bytes ==
              9088);
static_assert(MakeRecordLayout({KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CPU, 4, 128, 64}).bytes ==
              4672);
static_assert(MakeRecordLayout({KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128}).bytes ==
              9088);

}  // namespace kvarn
#endif  // KVARN_FORMAT_RECORD_LAYOUT_H_
