// SPDX-License-Identifier: Apache-2.0
//
// Thread block clusters: shared memory of other CTAs (PTX ISA, "Cluster" and "mapa").
#pragma once

#include <cstdint>

namespace kvarn::cuda {

__device__ __forceinline__ int ClusterRank() {
  uint32_t rank = 0;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of all CTAs; what they have written is seen after it.
__device__ __forceinline__ void ArriveAtCluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void WaitForCluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// The same place in the shared memory of another CTA.
__device__ __forceinline__ uint32_t AddressInCta(const void* shared, int rank) {
  uint32_t to = 0;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(to)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "r"(rank));
  return to;
}
__device__ __forceinline__ float4 LoadFromCluster4(uint32_t from) {
  float4 x;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(from)
               : "memory");
  return x;
}
__device__ __forceinline__ float2 LoadFromCluster2(uint32_t from) {
  float2 x;
  asm volatile("ld.shared::cluster.v2.f32 {%0,%1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "r"(from)
               : "memory");
  return x;
}

}  // namespace kvarn::cuda
