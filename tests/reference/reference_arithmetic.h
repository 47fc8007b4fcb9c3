// SPDX-License-Identifier: Apache-2.0
//
// The fp32 vocabulary of docs/format.md section 1: ordered sums, min, max, clamp, code.
#ifndef KVARN_TESTS_REFERENCE_REFERENCE_ARITHMETIC_H_
#define KVARN_TESTS_REFERENCE_REFERENCE_ARITHMETIC_H_

#include <cmath>
#include <cstddef>

namespace kvarn_reference {

inline float Min(float a, float b) { return a < b ? a : b; }
inline float Max(float a, float b) { return a > b ? a : b; }
inline float Clamp(float x, float low, float high) { return Min(Max(x, low), high); }

// nearbyint rounds ties to even in the default rounding mode.
inline float Code(float x, float q) { return std::nearbyintf(Min(Max(x, 0.0F), q)); }

// 1/a, and 0 where a is 0.
inline float Inverse(float a) { return a == 0.0F ? 0.0F : 1.0F / a; }

template <int kParts, typename Value>
float InterleavedSum(int n, Value value) {
  float part[size_t{kParts}] = {};
  int i = 0;
  for (; i + kParts <= n; i += kParts) {
    for (int j = 0; j < kParts; ++j) part[j] = part[j] + value(i + j);
  }
  for (; i < n; ++i) part[i % kParts] = part[i % kParts] + value(i);
  for (int half = kParts / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) part[j] = part[j] + part[j + half];
  }
  return part[0];
}

// "Sum over channels" and "sum over tokens".
template <typename Value>
float ChannelSum(int n, Value value) {
  return InterleavedSum<32>(n, value);
}
template <typename Value>
float TokenSum(int n, Value value) {
  return InterleavedSum<8>(n, value);
}

template <typename Value>
float ChannelMean(int n, Value value) {
  return ChannelSum(n, value) / static_cast<float>(n);
}
template <typename Value>
float TokenMean(int n, Value value) {
  return TokenSum(n, value) / static_cast<float>(n);
}

// sqrt(max(mean(y^2) - mean(y)^2, 0)) from the two means.
inline float Deviation(float mean_square, float mean) {
  return std::sqrt(Max(mean_square - mean * mean, 0.0F));
}

}  // namespace kvarn_reference
#endif  // KVARN_TESTS_REFERENCE_REFERENCE_ARITHMETIC_H_
