// SPDX-License-Identifier: Apache-2.0
//
// Balance exponents of a K tile (docs/format.md section 4).
#ifndef KVARN_TESTS_REFERENCE_REFERENCE_BALANCE_H_
#define KVARN_TESTS_REFERENCE_REFERENCE_BALANCE_H_

#include <cstdint>
#include <vector>

namespace kvarn_reference {

// keys [n_rows][head_dim]; query_ms [head_dim] or null.
std::vector<int8_t> Balance(int head_dim, const float* keys, int n_rows, const float* query_ms);

// 2^(exponent / 8) as the nearest fp32.
float BalanceFactor(int exponent);

}  // namespace kvarn_reference
#endif  // KVARN_TESTS_REFERENCE_REFERENCE_BALANCE_H_
