// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "cuda/planes/write_kernel.cuh"

namespace kvarn::cuda {

void LaunchPlaneWriteValue(const PlaneWriteParams& params, int n_streams, void* stream) {
  LaunchPlaneWrite<false>(params, n_streams, stream);
}

}  // namespace kvarn::cuda
