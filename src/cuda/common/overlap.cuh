// SPDX-License-Identifier: Apache-2.0
//
// Kernels that begin before the one in front of them has ended (programmatic dependent launch).
// Both need compute capability 9.0 and do nothing elsewhere, where a kernel begins when the one
// before has ended.
#pragma once

namespace kvarn::cuda {

// The next kernel of the stream may begin, if it was launched to (LaunchOverlapping).
__device__ __forceinline__ void LetNextBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// All that the kernel before has written is there from here on.
__device__ __forceinline__ void AwaitPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace kvarn::cuda
