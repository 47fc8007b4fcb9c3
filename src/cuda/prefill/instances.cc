// SPDX-License-Identifier: Apache-2.0
//
// Which compiled instance serves a call. The list is made by the build: src/cuda/instances.cmake.
#include "cuda/prefill/launch.h"

namespace kvarn::cuda {

#define KVARN_PREFILL(KD, VD, G) extern const PrefillInstance kPrefill_##KD##_##VD##_##G;
#include <prefill_instances.def>
#undef KVARN_PREFILL

namespace {

const PrefillInstance* const kInstances[] = {
#define KVARN_PREFILL(KD, VD, G) &kPrefill_##KD##_##VD##_##G,
#include <prefill_instances.def>
#undef KVARN_PREFILL
};

}  // namespace

const PrefillInstance* FindPrefillInstance(const kvarn_cuda_prefill& call) {
  for (const PrefillInstance* instance : kInstances) {
    if (instance->key_dim == call.attention.key_format.head_dim &&
        instance->value_dim == call.attention.value_format.head_dim &&
        instance->group == call.attention.key_format.group) {
      return instance;
    }
  }
  return nullptr;
}

}  // namespace kvarn::cuda
