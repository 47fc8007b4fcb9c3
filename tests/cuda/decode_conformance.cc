// SPDX-License-Identifier: Apache-2.0
//
// Decode attention on the GPU against softmax attention in double precision over rows that an
// independent decoder reconstructed. One self-contained program for a machine with a GPU.
//   decode_conformance [name part]     only cases whose name contains it
#include "attention_setup.h"

int main(int argc, char** argv) {
  return kvarn_cuda_test::RunCases(kvarn_cuda_test::DecodeCases(), argc > 1 ? argv[1] : nullptr);
}
