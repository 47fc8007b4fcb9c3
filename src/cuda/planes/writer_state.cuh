// SPDX-License-Identifier: Apache-2.0
//
// What a CTA that writes rows into a plane keeps in shared memory: the plane's small tables for as
// long as the call lasts, and what thread 0 tells the others.
#pragma once

#include "cuda/cache/balance.cuh"
#include "cuda/planes/call_runs.cuh"
#include "cuda/planes/quick_write.cuh"

namespace kvarn::cuda {

static_assert(kBalanceThreads == kEncodeThreads);

struct SealState {
  PlaneJob job;  // of the tile that is sealed
  bool waits;    // left to the second kernel
  bool computes_balance;
  int64_t balance_from;  // tile whose record has it; -1: `balance` has it already
  bool knows_queries;
  int n_rows;
  uint8_t position[kMaxGroup];
  int64_t balance_of;  // tile whose record has the bytes of `balance`, or -1
  int8_t balance[kMaxCudaHeadDim];
  BalanceShared balance_shared;
  // Jobs that wait.
  uint64_t slot_jobs;       // one bit a slot, whose memory they read
  int n_call_jobs;          // that read rows of the call alone
  int64_t lowest, highest;  // tiles
};

struct WriterState {
  QuickState quick;
  PlaneHeader header;  // but for counts, which are added in place
  SlotEntry slots[kMaxPlaneSlots];
  CallRows rows[kMaxPlaneSlots];
  SealState seal;
  RunWindow window;
  Run run;       // what is left of it
  int n;         // rows of it that are written next
  uint64_t due;  // slots that are sealed then, one bit each
  int slot;      // of its tile
  bool opens;    // the tile is not open
  bool reopens;  // it is sealed
  bool alone;    // none of the rows it had survives the run
  int waiting;   // a job of the tile that still waits, or -1
  TakenSlot taken;
  bool splits;  // the slot has other rows that lie in the call
  bool keeps_query;
  bool known[kMaxGroup];  // queries of rows that are written
};

}  // namespace kvarn::cuda
