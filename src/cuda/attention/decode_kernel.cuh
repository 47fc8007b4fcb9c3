// SPDX-License-Identifier: Apache-2.0
//
// Decode attention: one CTA an SM, one warp a unit at a time. The first records are on their way
// while the exact rows are worked on.
#pragma once

#include "cuda/attention/attend_exact.cuh"
#include "cuda/attention/attend_records.cuh"
#include "cuda/common/overlap.cuh"

namespace kvarn::cuda {

template <typename Shape, bool kGeneral>
__global__ void __maxnreg__(kGeneral ? 255 : Shape::kRegisters)
    DecodeKernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  LetNextBegin();
  const int lane = ThreadOfWorker<1>();
  unsigned char* memory = shared + WorkerIndex<1>() * Shape::kWarpBytes;
  RecordStream<Shape, kGeneral> stream(p, memory);
  AttendExact<Shape, kGeneral, UnitCursor<kExactUnits, 1>>(
      p, reinterpret_cast<uint2*>(memory + Shape::kQueryAt), 0, lane);
  AttendRecords<Shape, kGeneral>(p, memory, &stream, lane);
}

}  // namespace kvarn::cuda
