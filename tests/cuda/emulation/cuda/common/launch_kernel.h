// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the header of this name: runs the threads of a kernel one by one (emulator.cc).
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace kvarn_emulation {
void Launch(const std::function<void()>& kernel, dim3 grid, unsigned n_threads);
}  // namespace kvarn_emulation

namespace kvarn::cuda {

template <typename Params>
void LaunchKernel(void (*kernel)(Params), dim3 grid, int threads, Params params, void*,
                  size_t = 0) {
  kvarn_emulation::Launch([&] { kernel(params); }, grid, static_cast<unsigned>(threads));
}

}  // namespace kvarn::cuda
