// SPDX-License-Identifier: Apache-2.0
//
// Decode attention of calls with few units: a cluster has a KV head of a sequence to itself, as
// many CTAs as the GPU has for each. One kernel instead of two, and a plan that is only the list of
// tiles.
#pragma once

#include "cuda/attention/attend_exact.cuh"
#include "cuda/attention/attend_records.cuh"
#include "cuda/attention/cluster/merge.cuh"
#include "cuda/common/overlap.cuh"

namespace kvarn::cuda {

template <typename Shape, bool kGeneral>
__global__ void __maxnreg__(kGeneral ? 255 : Shape::kRegisters)
    ClusterDecodeKernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp = WorkerIndex<1>();
  const int lane = ThreadOfWorker<1>();
  unsigned char* memory = shared + warp * Shape::kWarpBytes;
  AwaitPrevious();
  const ClusterShare share = ShareOfCluster(p);
  RecordStream<Shape, kGeneral, ClusterCursor<kRecordUnits, Shape>> stream(p, memory, share);
  AttendExact<Shape, kGeneral, ClusterCursor<kExactUnits, Shape>>(
      p, reinterpret_cast<uint2*>(memory + Shape::kQueryAt), 0, lane, share);
  AttendRecords<Shape, kGeneral>(p, memory, &stream, lane);
  ClusterMerge<Shape> merge(p, share, shared, warp, lane);
#pragma unroll 1
  for (int pass = share.IsIdle(p) ? 0 : 1; pass < 2; ++pass) {
    if (pass == 1) {
      ArriveAtCluster();
      WaitForCluster();
    }
    merge.Run(pass == 0);
  }
  ArriveAtCluster();  // no CTA ends while others read its shared memory
  WaitForCluster();
}

}  // namespace kvarn::cuda
