// SPDX-License-Identifier: Apache-2.0
//
// The two products of a warp's query rows with a stage of K and V in shared memory. Thread (g, j) =
// (lane / 4, lane % 4) has query rows g and g + 8 of the warp, in each 8 columns the columns 2j and
// 2j + 1.
//   Score             queries of the CTA [row][channel] times keys [slot][channel]
//   AccumulateRows    weights times exact V, [position][channel]
//   StartScore, StartAccumulateRecord
//                     the same, and weights times V of a record, [permuted channel][slot], but
//                     results are there and operands free only after WaitProducts<0>()
#pragma once

#include "cuda/prefill/shape.h"

namespace kvarn::cuda {

inline constexpr int kStageColumnTiles = kStageRows / 8;

using StageScores = float[kStageColumnTiles][4];
// Softmax weights as operands: [16 slots][4 registers].
using StageWeights = uint32_t[kStageRows / 16][4];
template <typename Shape>
using Outputs = float[Shape::kValueTiles][4];

}  // namespace kvarn::cuda

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/prefill/products_sm90.cuh"
#else
#include "cuda/prefill/products_sm80.cuh"
#endif
