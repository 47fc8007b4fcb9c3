// SPDX-License-Identifier: Apache-2.0
//
// Single elements of the row types. Always inlined, as format/half.h.
#ifndef KVARN_FORMAT_DTYPE_H_
#define KVARN_FORMAT_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/half.h"
#include "kvarn/kvarn.h"

namespace kvarn {

[[gnu::always_inline]] inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest, ties to even. A NaN stays one.
[[gnu::always_inline]] inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// fp32 value of `count` elements; `in` need not be aligned.
inline void RowToFloat(kvarn_dtype dtype, const void* in, float* out, int count) {
  if (dtype == KVARN_FP32) {
    std::memcpy(out, in, sizeof(float) * static_cast<size_t>(count));
    return;
  }
  for (int i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, static_cast<const uint8_t*>(in) + 2 * static_cast<size_t>(i), sizeof(bits));
    out[i] = dtype == KVARN_BF16 ? Bf16ToFloat(bits) : HalfToFloat(bits);
  }
}

// fp16 saturates; a NaN stays one.
inline void FloatToRow(kvarn_dtype dtype, const float* in, void* out, int count) {
  if (dtype == KVARN_FP32) {
    std::memcpy(out, in, sizeof(float) * static_cast<size_t>(count));
    return;
  }
  for (int i = 0; i < count; ++i) {
    const uint16_t bits = dtype == KVARN_BF16 ? FloatToBf16(in[i])
                          : in[i] == in[i]    ? FloatToHalf(in[i])
                                              : uint16_t{0x7E00};
    std::memcpy(static_cast<uint8_t*>(out) + 2 * static_cast<size_t>(i), &bits, sizeof(bits));
  }
}

}  // namespace kvarn
#endif  // KVARN_FORMAT_DTYPE_H_
