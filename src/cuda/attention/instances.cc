// SPDX-License-Identifier: Apache-2.0
//
// Which compiled instance serves a call. The list is made by the build: src/cuda/instances.cmake.
#include <cuda_runtime_api.h>

#include "cuda/attention/check_call.h"
#include "cuda/attention/launch.h"

namespace kvarn::cuda {

#define KVARN_DECODE(KD, VD, KB, VB, G, N, GENERAL) \
  extern const DecodeInstance kDecode_##KD##_##VD##_##KB##_##VB##_##G##_##N##_##GENERAL;
#include <decode_instances.def>
#undef KVARN_DECODE

namespace {

const DecodeInstance* const kInstances[] = {
#define KVARN_DECODE(KD, VD, KB, VB, G, N, GENERAL) \
  &kDecode_##KD##_##VD##_##KB##_##VB##_##G##_##N##_##GENERAL,
#include <decode_instances.def>
#undef KVARN_DECODE
};

}  // namespace

const DecodeInstance* FindDecodeInstance(const kvarn_cuda_decode& call) {
  int device = 0;
  int major = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      major != 9) {
    return nullptr;
  }
  const int rows = call.n_heads / call.n_kv_heads * call.n_tokens;
  const bool general = call.softcap != 0.0F || call.window > 0 || call.max_bias > 0.0F ||
                       call.mask != nullptr || HasTileTable(call);
  const DecodeInstance* best = nullptr;
  for (const DecodeInstance* instance : kInstances) {
    if (instance->key_dim != call.key_format.head_dim ||
        instance->value_dim != call.value_format.head_dim ||
        instance->key_bits != call.key_format.bits ||
        instance->value_bits != call.value_format.bits ||
        instance->group != call.key_format.group || instance->general != general ||
        8 * instance->column_tiles < rows) {
      continue;
    }
    if (best == nullptr || instance->column_tiles < best->column_tiles) best = instance;
  }
  return best;
}

}  // namespace kvarn::cuda
