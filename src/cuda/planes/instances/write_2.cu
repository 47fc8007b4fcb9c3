// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "cuda/planes/write_kernel.cuh"

namespace kvarn::cuda {

template void LaunchPlaneWrite<2>(const PlaneWriteCalls& calls, int n_calls, void* stream);

}  // namespace kvarn::cuda
