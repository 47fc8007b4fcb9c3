// SPDX-License-Identifier: Apache-2.0
//
// IEEE binary16 <-> binary32 in plain integer code: the same result on every machine. Bulk
// conversions live in the CPU kernels. Always inlined, because the kernels of every instruction-set
// level use them and no level may share an out-of-line copy with another (cpu/kernels.h).
#ifndef KVARN_FORMAT_HALF_H_
#define KVARN_FORMAT_HALF_H_

#include <bit>
#include <cstdint>

namespace kvarn {

inline constexpr float kHalfMax = 65504.0F;

[[gnu::always_inline]] inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1FU) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

// Round to nearest, ties to even. |value| above kHalfMax saturates to it; `value` must not be NaN.
[[gnu::always_inline]] inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x477FE000U) return static_cast<uint16_t>(sign | 0x7BFFU);  // >= 65504
  if (magnitude < 0x38800000U) {  // below the smallest normal half: let fp32 addition round
    const float scaled = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3F000000U));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  const uint32_t rounded = magnitude + 0xFFFU + odd;
  const uint32_t half = (rounded - 0x38000000U) >> 13;
  return static_cast<uint16_t>(sign | (half > 0x7BFFU ? 0x7BFFU : half));
}

}  // namespace kvarn
#endif  // KVARN_FORMAT_HALF_H_
