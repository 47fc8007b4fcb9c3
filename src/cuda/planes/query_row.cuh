// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/cache/query_rms.cuh"
#include "cuda/common/ordered_sum.cuh"
#include "cuda/planes/plane_view.cuh"

namespace kvarn::cuda {

// Keeps the query statistics of row `index` of the call at a position, by a warp. False: they are
// not finite, which is as if not known, and nothing is kept.
template <int kColumns>
__device__ __forceinline__ bool KeepQuery(const DevicePlane& plane, int index, int position) {
  const int dim = plane.p.encode.head_dim;
  float rms[kColumns];
  bool known = true;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int d = 32 * c + Lane();
    rms[c] = 0.0F;
    if (d >= dim) continue;
    rms[c] =
        RmsOfHeads(plane.p.heads_per_kv, [&](int h) { return plane.QueryOfCall(index, h)[d]; });
    known = known && !isnan(rms[c]);
  }
  if (__all_sync(0xFFFFFFFFU, known ? 1 : 0) == 0) return false;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int d = 32 * c + Lane();
    if (d < dim) plane.QueryRow(position)[d] = __half_as_ushort(__float2half_rn(rms[c]));
  }
  return true;
}

}  // namespace kvarn::cuda
