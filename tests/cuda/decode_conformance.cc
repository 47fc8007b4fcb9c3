// SPDX-License-Identifier: Apache-2.0
//
// Decode attention on the GPU against softmax attention in double precision over rows that an
// independent decoder reconstructed. One self-contained program for a machine with a GPU.
//   decode_conformance [name part]     only cases whose name contains it
#include <cmath>
#include <cstdio>
#include <cstring>

#include "decode_setup.h"

namespace {

using kvarn_cuda_test::DecodeCase;
using kvarn_cuda_test::DecodeSetup;

// Cases whose options a machine's build lacks are counted, not hidden.
enum class Outcome { kPassed, kFailed, kNotCompiled };

Outcome RunCase(const DecodeCase& c) {
  DecodeSetup setup(c);
  const kvarn_status status = setup.Run();
  if (status == KVARN_ERROR_UNSUPPORTED) {
    std::printf("%-58s not compiled in\n", c.Name().c_str());
    return Outcome::kNotCompiled;
  }
  if (status != KVARN_OK) {
    std::printf("%-58s FAILED: %s\n", c.Name().c_str(), kvarn_status_text(status));
    return Outcome::kFailed;
  }
  const kvarn_cuda_test::Errors errors = setup.Compare();
  const bool ok = errors.worst_share <= 1.0 && setup.RepeatsExactly();
  std::printf("%-58s error %.1e of the output, %3.0f %% of the bound%s\n", c.Name().c_str(),
              errors.worst_relative, errors.worst_share * 100.0, ok ? "" : "  FAILED");
  return ok ? Outcome::kPassed : Outcome::kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  if (!kvarn_cuda_test::HasDevice()) {
    std::printf("skipped: no CUDA device on this machine\n");
    return 77;
  }
  int count[3] = {};
  for (const DecodeCase& c : kvarn_cuda_test::DecodeCases()) {
    if (argc > 1 && c.Name().find(argv[1]) == std::string::npos) continue;
    count[static_cast<int>(RunCase(c))] += 1;
  }
  std::printf("%d passed, %d failed, %d not compiled in\n", count[0], count[1], count[2]);
  return count[1] == 0 && count[0] > 0 ? 0 : 1;
}
