// SPDX-License-Identifier: Apache-2.0
//
// main() of the CPU benchmarks: Google Benchmark's, --isa=LEVEL and the machine's limits.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "cpu_limits.h"
#include "kvarn/kvarn.h"

int main(int argc, char** argv) {
  // "--isa=avx2" is ours, the rest is the library's.
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--isa=", 0) != 0) continue;
    if (kvarn_isa_force(word.c_str() + 6) != KVARN_OK) {
      std::fprintf(stderr, "%s: not a level of this machine; known: scalar, avx2, avx512, neon\n",
                   argv[i]);
      return 1;
    }
    for (int j = i; j + 1 < argc; ++j) argv[j] = argv[j + 1];
    --argc;
    break;
  }
  benchmark::AddCustomContext("isa", kvarn_isa_name());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  char limits[100];
  std::snprintf(limits, sizeof(limits), "%.1f GB/s read, %.0f G products/s %s",
                kvarn_bench::Limits().read_bytes * 1e-9, kvarn_bench::Limits().int8_macs * 1e-9,
                kvarn_bench::Limits().int8_by);
  benchmark::AddCustomContext("one thread", limits);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
