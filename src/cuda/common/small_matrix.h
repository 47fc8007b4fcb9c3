// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "codec/rotation.h"

namespace kvarn::cuda {

inline constexpr int kMaxCudaHeadDim = 256;

// The small Hadamard matrix of a head dim (at most kMaxCudaHeadDim) on the current device. Uploaded
// once and kept, because captured graphs refer to it. Null without a matrix; `ok` false if the
// upload failed.
const int8_t* SmallMatrix(const Rotation& rotation, bool* ok);

}  // namespace kvarn::cuda
