// SPDX-License-Identifier: Apache-2.0
#include "cuda/encode/kernel.cuh"

namespace kvarn::cuda {

void LaunchEncodeValue(const EncodeParams& params, void* stream) {
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  const int columns = (params.head_dim + 31) / 32;
  if (columns <= 2) return LaunchEncode<false, 2>(params, cuda_stream);
  if (columns == 3) return LaunchEncode<false, 3>(params, cuda_stream);
  if (columns == 4) return LaunchEncode<false, 4>(params, cuda_stream);
  if (columns <= 6) return LaunchEncode<false, 6>(params, cuda_stream);
  LaunchEncode<false, 8>(params, cuda_stream);
}

}  // namespace kvarn::cuda
