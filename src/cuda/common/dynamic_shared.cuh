// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvarn::cuda {

// The CTA's dynamic shared memory. Apart, so that tests can stand in for it where there is no GPU.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
}

}  // namespace kvarn::cuda
