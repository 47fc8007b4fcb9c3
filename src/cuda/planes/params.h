// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the kernels that write rows into planes. Pointers are device memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/plane.h"
#include "cuda/encode/params.h"

namespace kvarn::cuda {

inline constexpr int kMaxPlaneCalls = 2;   // the K and the V of a layer
inline constexpr int kMaxPlaneSlots = 64;  // one bit each
inline constexpr int kMostTakenRows = 32;

// Where the rows of a call go in a plane whose tables have taken them already.
struct TakenRows {
  uint32_t took;                   // else nothing is taken yet
  uint32_t queries;                // rows that have query statistics, one bit each
  int32_t places[kMostTakenRows];  // slot * G + position, below 0: of no row of this plane
};

// Rows of a tile that lie among those of the call and in no slot yet.
struct CallRows {
  int32_t first;       // row of the call that belongs at position 0; may be negative
  int16_t begin, end;  // positions of these rows; none if equal
  bool alone;          // the other positions are zeros, whatever the slot's memory holds
  bool counted;        // what they had of values out of range and the like has been counted
};

// A tile to encode.
struct PlaneJob {
  int64_t tile;
  RowBits written;  // none: no job
  int32_t slot;     // whose memory has the positions that `rows` does not have
  CallRows rows;
};

struct PlaneWriteParams {
  EncodeParams encode;  // without tiles and counts
  bool key;
  // kvarn_plane, without what only the host needs.
  size_t tiles_at, slots_at, queries_at, exact_at, records_at;
  int64_t n_rows;
  int32_t tail_rows, sink_tiles, n_slots;
  uint8_t* planes;  // [n_streams][n_kv_heads]
  int64_t plane_stride;
  int32_t n_streams, n_kv_heads;
  // The rows of the call.
  int32_t n_writes;
  const int64_t* rows;  // [n_writes] stream * n_rows + row
  const uint8_t* x;     // fp32 rows
  int64_t x_row_stride, x_head_stride;
  const uint8_t* query;  // fp32 rows, or null
  int32_t heads_per_kv;
  int64_t query_row_stride, query_head_stride;
  TakenRows* taken;  // [n_streams][n_kv_heads], or null
  // What is left to the second kernel, or null: nothing is. [n_streams][n_kv_heads][n_jobs]: the
  // first n_slots jobs may read the memory of their slot, the others only rows of the call.
  PlaneJob* jobs;
  int32_t n_jobs;
  CallRows* slot_rows;  // [n_streams][n_kv_heads][n_slots], to be stored after the jobs
  // Which recent copy a tile has, [n_streams][n_tiles], or null. With it the second kernel comes in
  // two parts: the first does what changes tiles without a copy, `rest` what nobody reads who
  // reads the copies.
  const int32_t* places;
  int32_t n_tiles;
  bool rest;
};

struct PlaneWriteCalls {
  PlaneWriteParams call[kMaxPlaneCalls];
};

// Calls of many layers at once, as many as the arguments of a kernel hold.
inline constexpr int kMaxTakenCalls = 64;
struct PlaneTakeCalls {
  PlaneWriteParams call[kMaxTakenCalls];
};
static_assert(sizeof(PlaneTakeCalls) <= 32764);

// Planes of the call that has the most.
template <typename Calls>
unsigned MostPlanes(const Calls& calls, int n_calls) {
  int most = 0;
  for (int i = 0; i < n_calls; ++i) {
    most = std::max(most, calls.call[i].n_streams * calls.call[i].n_kv_heads);
  }
  return static_cast<unsigned>(most);
}

// Fills `taken` of calls.
void LaunchTake(const PlaneTakeCalls& calls, int n_calls, void* stream);

// The two kernels: one CTA a plane, and one a job of a plane if a call has jobs; and the one behind
// LaunchTake. kColumns as for the encoder, of the call with the longest rows.
template <int kColumns>
struct PlaneWriteKernels {
  static void LaunchTakeRest(const PlaneTakeCalls& calls, int n_calls, void* stream);
  static void LaunchWrite(const PlaneWriteCalls& calls, int n_calls, void* stream);
  static void LaunchJobs(const PlaneWriteCalls& calls, int n_calls, void* stream);
};
extern template struct PlaneWriteKernels<2>;
extern template struct PlaneWriteKernels<4>;
extern template struct PlaneWriteKernels<8>;

}  // namespace kvarn::cuda
