// SPDX-License-Identifier: Apache-2.0
//
// What one thread of this machine can do at most, measured: what shares of a benchmark refer to.
#ifndef KVARN_BENCH_CPU_LIMITS_H_
#define KVARN_BENCH_CPU_LIMITS_H_

namespace kvarn_bench {

struct CpuLimits {
  double read_bytes;  // a second, from memory: the best of several ways to read in order
  double int8_macs;   // products of bytes added up, a second, by the instruction that the level in
                      // use multiplies codes with; 0: the level has none
  const char* int8_by;  // that instruction
};

// Measured at the first call (about half a second), for the level in use then.
const CpuLimits& Limits();

}  // namespace kvarn_bench
#endif  // KVARN_BENCH_CPU_LIMITS_H_
