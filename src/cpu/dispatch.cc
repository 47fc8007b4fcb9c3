// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "cpu/kernels.h"

namespace kvarn {
namespace {

#if defined(__x86_64__) || defined(__i386__)
bool MachineHasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
bool MachineHasAvx512() {
  return MachineHasAvx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#else
bool MachineHasAvx2() { return false; }
bool MachineHasAvx512() { return false; }
#endif

#if defined(__aarch64__) && defined(__linux__)
bool MachineHasNeon() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#else
bool MachineHasNeon() { return false; }
#endif

const Kernels* BestKernels() {
  const Kernels* best = nullptr;
  if (MachineHasNeon()) best = NeonKernels();
  if (MachineHasAvx512()) best = Avx512Kernels();
  if (best == nullptr && MachineHasAvx2()) best = Avx2Kernels();
  return best != nullptr ? best : ScalarKernels();
}

std::atomic<const Kernels*> active{nullptr};

}  // namespace

const Kernels& ActiveKernels() {
  const Kernels* kernels = active.load(std::memory_order_acquire);
  if (kernels == nullptr) {
    kernels = BestKernels();
    active.store(kernels, std::memory_order_release);
  }
  return *kernels;
}

const Kernels* FindKernels(const char* name, bool* known) {
  *known = true;
  if (std::strcmp(name, "scalar") == 0) return ScalarKernels();
  if (std::strcmp(name, "avx2") == 0) return MachineHasAvx2() ? Avx2Kernels() : nullptr;
  if (std::strcmp(name, "avx512") == 0) return MachineHasAvx512() ? Avx512Kernels() : nullptr;
  if (std::strcmp(name, "neon") == 0) return MachineHasNeon() ? NeonKernels() : nullptr;
  *known = false;
  return nullptr;
}

void ForceKernels(const Kernels* kernels) {
  active.store(kernels != nullptr ? kernels : BestKernels(), std::memory_order_release);
}

}  // namespace kvarn
