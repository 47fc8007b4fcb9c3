// SPDX-License-Identifier: Apache-2.0
//
// Terms of the balance (docs/format.md section 4) that the CPU and CUDA encoders share. To be
// compiled without fused multiply-adds.
#ifndef KVARN_CODEC_BALANCE_TERMS_H_
#define KVARN_CODEC_BALANCE_TERMS_H_

#include <bit>
#include <cstdint>

namespace kvarn {

// log2 of a positive normal number with adds and multiplies only, so that every machine agrees:
// x = m 2^k, m in [sqrt(1/2), sqrt(2)), u = (m-1)/(m+1), log2 m = (2/ln 2)(u + u^3/3 + ... +
// u^9/9). Absolute error below 3e-7, far below the 1/8 octave it is rounded to.
constexpr float Log2(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  float mantissa = std::bit_cast<float>((bits & 0x7FFFFFU) | 0x3F800000U);
  if (mantissa >= 1.4142135623730951F) {
    mantissa = mantissa * 0.5F;
    exponent += 1;
  }
  const float u = (mantissa - 1.0F) / (mantissa + 1.0F);
  const float u2 = u * u;
  float poly = 1.0F / 9.0F;
  poly = poly * u2 + 1.0F / 7.0F;
  poly = poly * u2 + 1.0F / 5.0F;
  poly = poly * u2 + 1.0F / 3.0F;
  poly = poly * u2 + 1.0F;
  return static_cast<float>(exponent) + 2.8853900817779268F * u * poly;
}

// A mean square away from zero, where its logarithm is taken.
constexpr float Floored(float value, float mean) { return (value + 1e-3F * mean) + 1e-12F; }

}  // namespace kvarn
#endif  // KVARN_CODEC_BALANCE_TERMS_H_
