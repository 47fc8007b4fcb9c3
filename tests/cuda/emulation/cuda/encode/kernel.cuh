// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the header of this name: the encoder of the CPU library. The real one takes too
// many exchanges between threads to be run one by one.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "../../../sixteen_bit.h"
#include "cuda/encode/common.cuh"

namespace kvarn::cuda {

template <bool kKey, int kColumns, typename Rows>
void EncodeTileOf(const EncodeParams& params, const kvarn_cuda_tile& job, const Rows& source,
                  EncodeShared<kColumns>*) {
  if (threadIdx.x != 0) return;
  const kvarn_format format = {kKey ? KVARN_KEY : KVARN_VALUE,
                               KVARN_BALANCED,
                               KVARN_ORDER_CUDA,
                               params.bits,
                               params.group,
                               params.head_dim};
  constexpr float kTop = 65504.0F;
  std::vector<float> rows;
  std::vector<int32_t> positions;
  for (int g = 0; g < params.group; ++g) {
    if ((job.written[g / 64] >> (g % 64) & 1U) == 0) continue;
    positions.push_back(g);
    const auto row = source.At(g);
    const size_t begin = rows.size();
    bool finite = true;
    uint64_t saturated = 0;
    for (int d = 0; d < params.head_dim; ++d) {
      const float x = source.Load(row, d);
      finite = finite && isfinite(x);
      saturated += std::fabs(x) > kTop ? 1 : 0;
      const float clamped = std::min(std::max(x, -kTop), kTop);
      rows.push_back(Rows::kToHalf ? kvarn_cuda_test::ToFloat(
                                         kvarn_cuda_test::ToBits(clamped, KVARN_FP16), KVARN_FP16)
                                   : clamped);
    }
    if (!finite) std::fill(rows.begin() + static_cast<std::ptrdiff_t>(begin), rows.end(), 0.0F);
    if (params.counts == nullptr) continue;
    params.counts->rows_zeroed += finite ? 0 : 1;
    params.counts->values_saturated += finite ? saturated : 0;
  }
  kvarn_encode(&format, rows.data(), static_cast<int32_t>(positions.size()), positions.data(),
               kKey ? job.balance : nullptr, job.record, params.counts);
}

}  // namespace kvarn::cuda
