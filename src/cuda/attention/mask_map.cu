// SPDX-License-Identifier: Apache-2.0
//
// What blocks of query tokens see of each tile, from the mask alone: once for all layers.
#include <cuda_runtime.h>

#include "cuda/attention/shape.h"
#include "cuda/common/check.h"
#include "cuda/common/launch_kernel.h"

namespace kvarn::cuda {
namespace {

constexpr int kMapWarps = 8;  // of a CTA

struct MaskMapParams {
  const unsigned char* mask;
  int64_t sequence_stride, token_stride;
  int32_t n_tokens, n_positions, group;
  int32_t n_blocks, n_tiles;
  int64_t n_entries;
  uint8_t* map;
};

// One warp an entry.
__global__ void __launch_bounds__(kMapWarps* kWarpSize)
    MaskMapKernel(const __grid_constant__ MaskMapParams p) {
  constexpr unsigned kMinusInfinity = 0xFC00;
  constexpr unsigned kMagnitude = 0x7FFF;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t entry = int64_t{blockIdx.x} * kMapWarps + static_cast<int>(threadIdx.x) / kWarpSize;
  if (entry >= p.n_entries) return;
  const auto tile = static_cast<int>(entry % p.n_tiles);
  const auto block = static_cast<int>(entry / p.n_tiles % p.n_blocks);
  const int64_t sequence = entry / p.n_tiles / p.n_blocks;
  const int token = block * KVARN_CUDA_MAP_TOKENS;
  const int n_tokens = min(p.n_tokens - token, static_cast<int>(KVARN_CUDA_MAP_TOKENS));
  const int position = tile * p.group + lane;
  const unsigned char* row =
      p.mask + sequence * p.sequence_stride + token * p.token_stride + 2 * int64_t{position};
  bool seen = false;
  bool plain = tile * p.group + p.group <= p.n_positions;
#pragma unroll 4
  for (int t = 0; t < n_tokens; ++t) {
    for (int g = 0; g < p.group; g += kWarpSize) {
      if (position + g >= p.n_positions) break;
      const unsigned addend = reinterpret_cast<const uint16_t*>(row + t * p.token_stride)[g];
      seen = seen || addend != kMinusInfinity;
      plain = plain && (addend & kMagnitude) == 0;
    }
  }
  const bool none = __all_sync(0xFFFFFFFFU, seen ? 0 : 1) != 0;
  const bool all = __all_sync(0xFFFFFFFFU, plain ? 1 : 0) != 0;
  if (lane == 0) {
    p.map[entry] =
        static_cast<uint8_t>((none ? 0 : KVARN_CUDA_MAP_SEEN) | (all ? KVARN_CUDA_MAP_PLAIN : 0));
  }
}

}  // namespace
}  // namespace kvarn::cuda

kvarn_status kvarn_cuda_mask_map(const uint16_t* mask, int64_t mask_sequence_stride,
                                 int64_t mask_token_stride, int32_t n_sequences, int32_t n_tokens,
                                 int32_t n_positions, int32_t group, uint8_t* map, void* stream) {
  using namespace kvarn::cuda;
  if (n_sequences < 0 || n_tokens < 0 || n_positions < 0 || (group != 64 && group != 128)) {
    return KVARN_ERROR_ARGUMENT;
  }
  MaskMapParams p = {};
  p.mask = reinterpret_cast<const unsigned char*>(mask);
  p.sequence_stride = mask_sequence_stride;
  p.token_stride = mask_token_stride;
  p.n_tokens = n_tokens;
  p.n_positions = n_positions;
  p.group = group;
  p.n_blocks =
      static_cast<int32_t>((int64_t{n_tokens} + KVARN_CUDA_MAP_TOKENS - 1) / KVARN_CUDA_MAP_TOKENS);
  p.n_tiles = static_cast<int32_t>((int64_t{n_positions} + group - 1) / group);
  p.n_entries = int64_t{n_sequences} * p.n_blocks * p.n_tiles;
  p.map = map;
  if (p.n_entries == 0) return KVARN_OK;
  const int64_t n_ctas = (p.n_entries + kMapWarps - 1) / kMapWarps;
  const bool aligned = (mask_sequence_stride | mask_token_stride) % 2 == 0 && Aligned(mask, 2);
  if (mask == nullptr || map == nullptr || !aligned || n_ctas > INT32_MAX) {
    return KVARN_ERROR_ARGUMENT;
  }
  LaunchKernel(MaskMapKernel, dim3(static_cast<unsigned>(n_ctas)), kMapWarps * kWarpSize, p,
               stream);
  return cudaPeekAtLastError() == cudaSuccess ? KVARN_OK : KVARN_ERROR_UNSUPPORTED;
}
