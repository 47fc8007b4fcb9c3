// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the toolkit's header of this name where simple kernels are compiled by the C++
// compiler and run thread by thread (emulator.cc). What it lacks, they may not use.
#ifndef KVARN_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_
#define KVARN_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

// The parts of our headers that only nvcc sees.
#define __CUDACC__ 1

#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __forceinline__
#define __forceinline__ inline
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __noinline__
#define __noinline__
#undef __grid_constant__
#define __grid_constant__
#undef __shared__
#define __shared__ static  // one CTA runs at a time

using std::isfinite;
using std::isnan;
using std::max;
using std::min;

struct ThreadIndex {
  unsigned x, y, z;
};
extern ThreadIndex threadIdx, blockIdx;

void __syncthreads();

inline int __popcll(unsigned long long word) { return __builtin_popcountll(word); }
inline int __ffs(int word) { return __builtin_ffs(word); }
inline int atomicMax(int* to, int value) {
  const int before = *to;
  *to = before > value ? before : value;
  return before;
}
inline int atomicAdd(int* to, int value) {
  *to += value;
  return *to - value;
}
inline int atomicCAS(int* to, int expected, int value) {
  const int before = *to;
  if (before == expected) *to = value;
  return before;
}
inline int atomicExch(int* to, int value) {
  const int before = *to;
  *to = value;
  return before;
}
inline unsigned atomicOr(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to = before | value;
  return before;
}
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  *to += value;
  return *to - value;
}

namespace kvarn_emulation {
// What lane `from` of the warp gave, once all lanes have.
uint32_t Exchange(uint32_t value, unsigned from);
// One bit a lane.
uint32_t Ballot(bool value);
}  // namespace kvarn_emulation

inline float __uint_as_float(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<uint32_t>(bits)); }
inline uint32_t __float_as_uint(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __shfl_xor_sync(unsigned, float value, int mask) {
  const unsigned lane = threadIdx.x % 32;
  return __uint_as_float(
      kvarn_emulation::Exchange(__float_as_uint(value), lane ^ static_cast<unsigned>(mask)));
}
inline int __shfl_sync(unsigned, int value, int from) {
  return static_cast<int>(
      kvarn_emulation::Exchange(static_cast<uint32_t>(value), static_cast<unsigned>(from)));
}
inline int64_t __shfl_sync(unsigned, int64_t value, int from) {
  const auto bits = static_cast<uint64_t>(value);
  const auto lane = static_cast<unsigned>(from);
  const uint32_t low = kvarn_emulation::Exchange(static_cast<uint32_t>(bits), lane);
  const uint32_t high = kvarn_emulation::Exchange(static_cast<uint32_t>(bits >> 32U), lane);
  return static_cast<int64_t>(uint64_t{high} << 32U | low);
}
inline int64_t __shfl_up_sync(unsigned, int64_t value, int distance) {
  const unsigned lane = threadIdx.x % 32;
  const auto by = static_cast<unsigned>(distance);
  const unsigned from = lane >= by ? lane - by : lane;
  const uint32_t low = kvarn_emulation::Exchange(static_cast<uint32_t>(value), from);
  const uint32_t high =
      kvarn_emulation::Exchange(static_cast<uint32_t>(static_cast<uint64_t>(value) >> 32U), from);
  return static_cast<int64_t>(uint64_t{high} << 32U | low);
}
inline void __syncwarp() { kvarn_emulation::Ballot(true); }
inline unsigned __ballot_sync(unsigned, bool value) { return kvarn_emulation::Ballot(value); }
inline int __all_sync(unsigned, int value) {
  return kvarn_emulation::Ballot(value != 0) == 0xFFFFFFFFU ? 1 : 0;
}

#endif  // KVARN_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_
