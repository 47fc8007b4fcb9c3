// SPDX-License-Identifier: Apache-2.0
//
// Prefill attention on the GPU, held to the same oracle as decode attention.
//   prefill_conformance [name part]     only cases whose name contains it
#include "attention_setup.h"

int main(int argc, char** argv) {
  return kvarn_cuda_test::RunCases(kvarn_cuda_test::PrefillCases(), argc > 1 ? argv[1] : nullptr);
}
