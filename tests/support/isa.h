// SPDX-License-Identifier: Apache-2.0
//
// Instruction-set levels: which exist here, and forcing one with proof.
#ifndef KVARN_TESTS_SUPPORT_ISA_H_
#define KVARN_TESTS_SUPPORT_ISA_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvarn/kvarn.h"

namespace kvarn_test {

inline constexpr const char* kIsaNames[] = {"scalar", "avx2", "avx512", "neon"};

// Forces a level for its own life, and fails the test if another one is in use afterwards.
class ForcedIsa {
 public:
  explicit ForcedIsa(const std::string& name) {
    EXPECT_EQ(kvarn_isa_force(name.c_str()), KVARN_OK) << name;
    EXPECT_EQ(std::string(kvarn_isa_name()), name);
  }
  ~ForcedIsa() { kvarn_isa_force(nullptr); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;
};

inline std::vector<std::string> AvailableIsas() {
  std::vector<std::string> names;
  for (const char* name : kIsaNames) {
    if (kvarn_isa_force(name) == KVARN_OK) names.emplace_back(name);
  }
  kvarn_isa_force(nullptr);
  return names;
}

// For the log: "scalar avx2".
inline std::string IsaList() {
  std::string text;
  for (const std::string& name : AvailableIsas()) text += (text.empty() ? "" : " ") + name;
  return text;
}

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_ISA_H_
