// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "cuda/planes/write_kernel.cuh"

namespace kvarn::cuda {

void LaunchPlaneWriteKey(const PlaneWriteParams& params, int n_streams, void* stream) {
  LaunchPlaneWrite<true>(params, n_streams, stream);
}

}  // namespace kvarn::cuda
