// SPDX-License-Identifier: Apache-2.0
//
// Cuts the rows of a call into runs: neighbouring rows of one tile, one after the other. Prompts
// are a run a tile; decode steps and scattered rows are runs of one.
#pragma once

#include "cuda/common/ordered_sum.cuh"
#include "cuda/planes/plane_view.cuh"

namespace kvarn::cuda {

struct Run {
  int64_t tile;
  int position;  // of its first row in the tile
  int index;     // of its first row in the call
  int n;
};

// Some rows of the call, and what is known about each.
struct RunWindow {
  static constexpr int kRows = 1024;

  int64_t row[kRows];            // of the stream; -1: not of this stream
  uint32_t mine[kRows / 32];     // one bit a row: of the stream
  uint32_t follows[kRows / 32];  // continues the run of the row before
  int begin;                     // index of row[0] in the call
  int at;                        // the next to look at
};

// All threads; for thread 0 after the last barrier in it.
__device__ inline void LoadWindow(const DevicePlane& plane, int begin, RunWindow* window) {
  const PlaneWriteParams& p = plane.p;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < RunWindow::kRows; i += kEncodeThreads) {
    window->row[i] = plane.PlaceOfCallRow(begin + i);
  }
  __syncthreads();
  for (int i = thread; i < RunWindow::kRows; i += kEncodeThreads) {
    const int64_t row = window->row[i];
    const bool mine = row >= 0;
    const bool follows =
        mine && i > 0 && window->row[i - 1] == row - 1 && row % p.encode.group != 0;
    const unsigned mine_bits = __ballot_sync(0xFFFFFFFFU, mine);
    const unsigned follows_bits = __ballot_sync(0xFFFFFFFFU, follows);
    if (Lane() == 0) {
      window->mine[i / 32] = mine_bits;
      window->follows[i / 32] = follows_bits;
    }
  }
  if (thread == 0) {
    window->begin = begin;
    window->at = 0;
  }
  __syncthreads();
}

// The first bit from `from` on that is `set`, or RunWindow::kRows.
__device__ inline int NextBit(const uint32_t* bits, int from, bool set) {
  for (int word = from / 32; word < RunWindow::kRows / 32; ++word) {
    uint32_t found = set ? bits[word] : ~bits[word];
    if (word == from / 32) found &= 0xFFFFFFFFU << (from % 32);
    if (found != 0) return 32 * word + __ffs(static_cast<int>(found)) - 1;
  }
  return RunWindow::kRows;
}

// Thread 0. A run with n = 0 if the window has no more; window->begin is then that of the next one.
__device__ inline Run NextRun(const PlaneWriteParams& p, RunWindow* window) {
  const int from = NextBit(window->mine, window->at, true);
  const int end = from < RunWindow::kRows ? NextBit(window->follows, from + 1, false) : from;
  // A run that may go on beyond the window is looked at again from its first row.
  const bool cut = end == RunWindow::kRows && from > 0 && window->begin + end < p.n_writes;
  if (from == RunWindow::kRows || cut) {
    window->begin += from;
    return {};
  }
  window->at = end;
  const int64_t row = window->row[from];
  const int64_t tile = row / p.encode.group;
  return {tile, static_cast<int>(row - tile * p.encode.group), window->begin + from, end - from};
}

}  // namespace kvarn::cuda
