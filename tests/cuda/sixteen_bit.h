// SPDX-License-Identifier: Apache-2.0
#ifndef KVARN_TESTS_CUDA_SIXTEEN_BIT_H_
#define KVARN_TESTS_CUDA_SIXTEEN_BIT_H_

#include <cstdint>
#include <cstring>

#include "kvarn/kvarn_cuda.h"

namespace kvarn_cuda_test {

// Truncates to bf16: as good as any rounding for test data.
inline uint16_t ToBits(float value, kvarn_dtype dtype) {
  if (dtype == KVARN_BF16) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
  }
  const auto half = static_cast<_Float16>(value);
  uint16_t bits = 0;
  std::memcpy(&bits, &half, sizeof(bits));
  return bits;
}

inline float ToFloat(uint16_t bits, kvarn_dtype dtype) {
  if (dtype == KVARN_BF16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  _Float16 half = 0;
  std::memcpy(&half, &bits, sizeof(half));
  return static_cast<float>(half);
}

inline double HalfToDouble(uint16_t bits) { return ToFloat(bits, KVARN_FP16); }

}  // namespace kvarn_cuda_test
#endif  // KVARN_TESTS_CUDA_SIXTEEN_BIT_H_
