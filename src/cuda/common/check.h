// SPDX-License-Identifier: Apache-2.0
//
// What all calls ask of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/record_layout.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {

inline bool Aligned(const void* pointer, size_t to) {
  return reinterpret_cast<uintptr_t>(pointer) % to == 0;
}

// Whether the attention kernels can read such records.
inline bool IsCudaRecord(const kvarn_format& format, kvarn_role role) {
  return IsLegal(format) && format.role == role && format.order == KVARN_ORDER_CUDA &&
         format.mode == KVARN_BALANCED;
}

}  // namespace kvarn::cuda
