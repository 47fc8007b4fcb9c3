// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "cuda/planes/write_kernel.cuh"

namespace kvarn::cuda {

template struct PlaneWriteKernels<8>;

}  // namespace kvarn::cuda
