// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the kernels that take a step's rows into the cache, and what follows from the row
// numbers of a sequence. Pointers are device memory.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "format/record_layout.h"
#include "kvarn/kvarn_cuda.h"

namespace kvarn::cuda {

struct AppendParams {
  kvarn_cuda_append call;
  RecordLayout key;
  int32_t group;
  int32_t heads_per_kv;
  int32_t max_seals;  // tiles that a step can seal
  // Workspace.
  int2* seals;                   // [max_seals] sequence, tile; unused ones have sequence -1
  kvarn_cuda_tile* key_tiles;    // [max_seals][n_kv_heads]
  kvarn_cuda_tile* value_tiles;  // likewise
  int8_t* balances;              // [max_seals][n_kv_heads][balance_stride]
  int32_t balance_stride;
};

void LaunchAppendPlan(const AppendParams& params, void* stream);
void LaunchSealJobs(const AppendParams& params, void* stream);
void LaunchWriteRows(const AppendParams& params, void* stream);

#ifdef __CUDACC__
// The new rows of a sequence.
struct StepRows {
  int begin;  // index of the first
  int count;
  int start;   // its position
  int length;  // rows of the sequence afterwards
};
__device__ __forceinline__ StepRows StepOf(const AppendParams& p, int sequence) {
  StepRows step;
  step.begin = p.call.row_begin[sequence];
  step.count = p.call.row_begin[sequence + 1] - step.begin;
  step.length = p.call.lengths[sequence];
  step.start = step.length - step.count;
  return step;
}
// Tiles that are records once a sequence has `rows` rows.
__device__ __forceinline__ int SealedTiles(const AppendParams& p, int rows) {
  return max(rows - p.call.tail_rows, 0) / p.group;
}
__device__ __forceinline__ int64_t RingRow(const AppendParams& p, int sequence, int position) {
  const int chunk = position / p.group % (p.call.ring_rows / p.group);
  const int64_t at = static_cast<int64_t>(sequence) * p.call.ring_base_stride + chunk;
  return int64_t{p.call.ring_base[at]} + position % p.group;
}
#endif

}  // namespace kvarn::cuda
