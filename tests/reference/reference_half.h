// SPDX-License-Identifier: Apache-2.0
//
// IEEE binary16 by its definition: a value is an integer number of steps of its binade.
#ifndef KVARN_TESTS_REFERENCE_REFERENCE_HALF_H_
#define KVARN_TESTS_REFERENCE_REFERENCE_HALF_H_

#include <cmath>
#include <cstdint>

namespace kvarn_reference {

// Round to nearest, ties to even; saturates at +-65504 and adds to `saturated` when it does.
inline uint16_t HalfFromFloat(float value, uint64_t* saturated) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) {
    if (saturated != nullptr) *saturated += 1;
    return static_cast<uint16_t>(sign | 0x7BFF);
  }
  int exponent = magnitude > 0.0 ? std::ilogb(magnitude) : -14;
  if (exponent < -14) exponent = -14;  // subnormals share the step of the smallest binade
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + steps));
}

inline double HalfToDouble(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  double magnitude = 0.0;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, -24);
  } else {
    magnitude = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

inline float HalfToFloat(uint16_t half) { return static_cast<float>(HalfToDouble(half)); }

}  // namespace kvarn_reference
#endif  // KVARN_TESTS_REFERENCE_REFERENCE_HALF_H_
