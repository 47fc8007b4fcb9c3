// SPDX-License-Identifier: Apache-2.0
#include "cuda/encode/kernel.cuh"

namespace kvarn::cuda {

void LaunchEncodeKey(const EncodeParams& params, void* stream) {
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  const int columns = (params.head_dim + 31) / 32;
  if (columns <= 2) return LaunchEncode<true, 2>(params, cuda_stream);
  if (columns == 3) return LaunchEncode<true, 3>(params, cuda_stream);
  if (columns == 4) return LaunchEncode<true, 4>(params, cuda_stream);
  if (columns <= 6) return LaunchEncode<true, 6>(params, cuda_stream);
  LaunchEncode<true, 8>(params, cuda_stream);
}

}  // namespace kvarn::cuda
