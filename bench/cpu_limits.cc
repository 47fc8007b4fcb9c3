// SPDX-License-Identifier: Apache-2.0
#include "cpu_limits.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kvarn/kvarn.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace kvarn_bench {
namespace {

constexpr int kRuns = 5;
constexpr int64_t kSteps = 4'000'000;  // of a loop of kChains instructions: some milliseconds
constexpr int kChains = 12;            // sums in registers, enough to hide an addition's latency

volatile int64_t result;  // keeps the work from being dropped

template <typename Work>
double BestSeconds(const Work& work) {
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

// Lines of `streams` parts of the memory in turn: several streams keep more lines on their way.
double ReadBytes() {
  const std::vector<uint64_t> memory(size_t{32} << 20, 1);  // 256 MiB
  double best = 0;
  for (const size_t streams : {size_t{1}, size_t{2}, size_t{4}, size_t{8}}) {
    const size_t part = memory.size() / streams;
    const double seconds = BestSeconds([&] {
      uint64_t sum[8] = {};
      for (size_t i = 0; i < part; i += 8) {
        for (size_t s = 0; s < streams; ++s) {
          const uint64_t* line = &memory[s * part + i];
          for (int k = 0; k < 8; ++k) sum[k] += line[k];
        }
      }
      for (const uint64_t x : sum) result = static_cast<int64_t>(x);
    });
    best = std::max(best, static_cast<double>(memory.size() * sizeof(uint64_t)) / seconds);
  }
  return best;
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw,avx512vnni"))) void Dpbusd512() {
  __m512i sum[kChains] = {};
  for (auto& x : sum) asm volatile("" : "+v"(x));  // different ones, for all the compiler knows
  __m512i code = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
    asm volatile("" : "+v"(code));  // another one each time
#pragma GCC unroll 12
    for (auto& x : sum) x = _mm512_dpbusd_epi32(x, code, code);
  }
  for (const auto& x : sum) result = _mm512_cvtsi512_si32(x);
}

// A product of pairs and the addition that its sums need.
__attribute__((target("avx2"))) void Maddubs256() {
  __m256i sum[kChains] = {};
  for (auto& x : sum) asm volatile("" : "+x"(x));
  __m256i code = _mm256_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
    asm volatile("" : "+x"(code));
#pragma GCC unroll 12
    for (auto& x : sum) x = _mm256_add_epi16(x, _mm256_maddubs_epi16(code, code));
  }
  for (const auto& x : sum) result = _mm256_extract_epi16(x, 0);
}
#elif defined(__aarch64__)
__attribute__((target("+dotprod"))) void Sdot128() {
  int32x4_t sum[kChains] = {};
  for (auto& x : sum) asm volatile("" : "+w"(x));
  int8x16_t code = vdupq_n_s8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
    asm volatile("" : "+w"(code));
#pragma GCC unroll 12
    for (auto& x : sum) x = vdotq_s32(x, code, code);
  }
  for (const auto& x : sum) result = vaddvq_s32(x);
}
#endif

double Macs(void (*loop)(), int macs) {
  return static_cast<double>(kSteps * kChains * macs) / BestSeconds(loop);
}

CpuLimits Measure() {
  CpuLimits limits = {ReadBytes(), 0, ""};
  const char* isa = kvarn_isa_name();
#if defined(__x86_64__)
  if (std::strcmp(isa, "avx512") == 0) return {limits.read_bytes, Macs(Dpbusd512, 64), "vpdpbusd"};
  if (std::strcmp(isa, "avx2") == 0) return {limits.read_bytes, Macs(Maddubs256, 32), "vpmaddubsw"};
#elif defined(__aarch64__)
  if (std::strcmp(isa, "neon") == 0) return {limits.read_bytes, Macs(Sdot128, 16), "sdot"};
#endif
  static_cast<void>(isa);
  return limits;
}

}  // namespace

const CpuLimits& Limits() {
  static const CpuLimits limits = Measure();
  return limits;
}

}  // namespace kvarn_bench
