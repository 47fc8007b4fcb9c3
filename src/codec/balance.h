// SPDX-License-Identifier: Apache-2.0
//
// The Q-K balance of a K tile (docs/format.md section 4): s[d] = 2^(e[d]/8).
#ifndef KVARN_CODEC_BALANCE_H_
#define KVARN_CODEC_BALANCE_H_

#include <cstdint>

namespace kvarn {

// keys [n_rows][row_stride] fp32 finite, head_dim of them used; query_ms [head_dim] or null.
void ComputeBalance(int head_dim, const float* keys, int row_stride, int n_rows,
                    const float* query_ms, int8_t* balance);

// s = 2^(e/8) and 1/s = 2^(-e/8), both correctly rounded constants times a power of two.
float BalanceScale(int exponent);

}  // namespace kvarn
#endif  // KVARN_CODEC_BALANCE_H_
