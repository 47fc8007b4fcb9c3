// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the header of this name: the encoder of the CPU library. The real one takes too
// many exchanges between threads to be run one by one.
#pragma once

#include <vector>

#include "../../../sixteen_bit.h"
#include "cuda/encode/common.cuh"

namespace kvarn::cuda {

template <bool kKey, int kColumns>
void EncodeTileOf(const EncodeParams& params, const kvarn_cuda_tile& job, EncodeShared<kColumns>*) {
  if (threadIdx.x != 0) return;
  const kvarn_format format = {kKey ? KVARN_KEY : KVARN_VALUE,
                               KVARN_BALANCED,
                               KVARN_ORDER_CUDA,
                               params.bits,
                               params.group,
                               params.head_dim};
  std::vector<float> rows;
  std::vector<int32_t> positions;
  for (int g = 0; g < params.group; ++g) {
    if ((job.written[g / 64] >> (g % 64) & 1U) == 0) continue;
    positions.push_back(g);
    const auto* row = reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(job.rows) +
                                                        g * job.row_stride);
    for (int d = 0; d < params.head_dim; ++d) {
      rows.push_back(kvarn_cuda_test::ToFloat(row[d], KVARN_FP16));
    }
  }
  kvarn_encode(&format, rows.data(), static_cast<int32_t>(positions.size()), positions.data(),
               kKey ? job.balance : nullptr, job.record, params.counts);
}

}  // namespace kvarn::cuda
