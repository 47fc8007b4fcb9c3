// SPDX-License-Identifier: Apache-2.0
//
// Writes the rows of a call into a plane, run by run: what a row opens or seals is decided before
// the next, as plane.cc does. Decisions are thread 0's; all threads carry them out.
//
// Where a second kernel follows, rows stay in the call until then (CallRows): a prompt costs the
// writer only the bookkeeping of its tiles. Rows that do not simply continue those of their tile,
// and tiles that are opened again, are brought into memory here.
#pragma once

#include "cuda/planes/decode_tile.cuh"
#include "cuda/planes/query_row.cuh"
#include "cuda/planes/row_bits.cuh"
#include "cuda/planes/sealer.cuh"

namespace kvarn::cuda {

template <bool kKey, int kColumns>
class PlaneWriter {
 public:
  __device__ PlaneWriter(const DevicePlane& plane, EncodeShared<kColumns>* encode,
                         WriterState* state)
      : plane_(plane), p_(plane.p), encode_(encode), s_(*state), sealer_(plane, encode, state) {}

  __device__ void WriteCall() {
    Start();
    int begin = 0;
    do {
      LoadWindow(plane_, begin, &s_.window);
      for (;;) {
        if (First()) Plan();
        __syncthreads();
        if (s_.run.n == 0) break;
        WriteRows();
      }
      begin = s_.window.begin;
    } while (begin < p_.n_writes);
    Finish();
  }

  // Takes the one row that a call has for this plane into the tables before it is there. What that
  // opens and seals has rows of earlier calls only: a row does not seal its own tile.
  __device__ void TakeRow(TakenRows* taken) {
    Start();
    LoadWindow(plane_, 0, &s_.window);
    if (First()) Plan();
    __syncthreads();
    if (s_.run.n != 0 && s_.opens) Open();
    if (s_.n != 0 && s_.opens && s_.alone) {
      StoreRows<kColumns>(plane_, CallRows{0, 0, 0, true, true}, s_.slot);  // zeros
    }
    if (s_.n != 0) SealDue();
    __syncthreads();
    Finish();
    const auto i = static_cast<int>(threadIdx.x);
    if (i < p_.n_writes) {
      const bool mine = s_.n != 0 && i == s_.run.index;
      taken->places[i] = mine ? s_.slot * p_.encode.group + s_.run.position : -1;
    }
    if (!First()) return;
    taken->queries = s_.n != 0 && s_.keeps_query ? 1U << s_.run.index : 0;
    taken->took = 1;
  }

 private:
  __device__ static bool First() { return threadIdx.x == 0; }
  __device__ bool Waits() const { return p_.jobs != nullptr; }

  __device__ void Start() {
    const auto i = static_cast<int>(threadIdx.x);
    if (i < p_.n_slots) {
      s_.slots[i] = plane_.Slots()[i];
      s_.rows[i] = {};
    }
    if (First()) {
      s_.header = plane_.Header();
      s_.run = {};
      s_.n = 0;
    }
    sealer_.Start();
  }

  __device__ void Finish() {
    const auto i = static_cast<int>(threadIdx.x);
    if (i < p_.n_slots) {
      plane_.Slots()[i] = s_.slots[i];
      if (Waits()) plane_.SlotRows()[i] = s_.rows[i];
    }
    if (!First()) return;
    PlaneHeader& header = plane_.Header();
    header.stamp = s_.header.stamp;
    header.seals = s_.header.seals;
    header.reopens = s_.header.reopens;
    header.query_owner = s_.header.query_owner;
    header.query_rows = s_.header.query_rows;
  }

  // Thread 0: the next rows, and what has to be done for them.
  __device__ void Plan() {
    Run& run = s_.run;
    run.position += s_.n;
    run.index += s_.n;
    run.n -= s_.n;
    s_.n = 0;
    if (run.n == 0) run = NextRun(p_, &s_.window);
    if (run.n == 0) return;
    const TileEntry& entry = plane_.Tiles()[run.tile];
    s_.opens = entry.state != TileState::kOpen;
    if (!s_.opens) {
      Account(entry.slot);
      return;
    }
    s_.reopens = entry.state == TileState::kSealed;
    RowBits survivors = s_.reopens ? entry.written : RowBits{};
    Remove(RowsOf(run.position, run.n), &survivors);
    s_.alone = survivors == RowBits{};
    s_.waiting = s_.reopens ? sealer_.Waiting(run.tile) : -1;
    s_.taken = SlotToTake(sealer_.Life());
  }

  __device__ void WriteRows() {
    if (s_.opens) Open();
    if (s_.n == 0) return;  // only sinks have slots
    const bool splits = s_.splits;
    if (splits) Store(s_.slot);
    if (splits && First()) Attach();
    if (!Waits()) Store(s_.slot);
    if (s_.keeps_query) KeepQueries();
    SealDue();
    __syncthreads();
  }

  __device__ void SealDue() {
    for (int slot = 0; slot < p_.n_slots; ++slot) {
      if ((s_.due >> slot & 1U) != 0) sealer_.Seal(slot);
    }
  }

  __device__ void Open() {
    const int slot = s_.taken.slot;
    if (slot < 0) {
      __syncthreads();
      if (First()) s_.run.n = 0;
      __syncthreads();
      return;
    }
    if (!s_.taken.free) sealer_.Seal(slot);
    if (s_.waiting >= 0) sealer_.DoNow(s_.waiting);
    TileEntry& entry = plane_.Tiles()[s_.run.tile];
    if (!s_.alone) {
      sealer_.ReleaseMemory(slot);
      const uint64_t written[2] = {entry.written.word[0], entry.written.word[1]};
      DecodeTileOf<kKey, kColumns>(p_.encode, plane_.Record(s_.run.tile), written, encode_,
                                   plane_.ExactTile(slot));
      __syncthreads();
    }
    if (First()) {
      if (s_.reopens) {
        s_.header.reopens += 1;
      } else {
        entry.written = {};
      }
      s_.slots[slot] = SlotEntry{s_.header.stamp + 1, s_.run.tile, {}};
      s_.rows[slot] = {0, 0, 0, s_.alone, false};
      entry.state = TileState::kOpen;
      entry.slot = static_cast<uint16_t>(slot);
      Account(slot);
    }
    __syncthreads();
  }

  // Thread 0: takes the rows up to the next that seals a tile into the tables.
  __device__ void Account(int slot) {
    const Run& run = s_.run;
    const int64_t row = run.tile * p_.encode.group + run.position;
    const TileLife life = sealer_.Life();
    int n = run.n;
    uint64_t due = 0;
    for (int i = 0; i < p_.n_slots; ++i) {
      const int after = DueAfter(life, i, row, n);
      if (after == 0) continue;
      if (after < n) due = 0;
      due |= uint64_t{1} << i;
      n = after;
    }
    const RowBits bits = RowsOf(run.position, n);
    Add(bits, &plane_.Tiles()[run.tile].written);
    Add(bits, &s_.slots[slot].fresh);
    s_.header.stamp += static_cast<uint64_t>(n);
    s_.slots[slot].stamp = s_.header.stamp;
    s_.slot = slot;
    s_.n = n;
    s_.due = due;
    s_.keeps_query = kKey && OwnsQueries(run.tile, bits);
    const CallRows& rows = s_.rows[slot];
    s_.splits = rows.begin != rows.end &&
                (rows.first != run.index - run.position || rows.end != run.position);
    if (!s_.splits) Attach();
  }

  // Thread 0: the rows belong to those of the slot.
  __device__ void Attach() {
    CallRows& rows = s_.rows[s_.slot];
    if (rows.begin == rows.end) rows.begin = static_cast<int16_t>(s_.run.position);
    rows.first = s_.run.index - s_.run.position;
    rows.end = static_cast<int16_t>(s_.run.position + s_.n);
  }

  // Brings the rows of a slot into its memory.
  __device__ void Store(int slot) {
    sealer_.ReleaseMemory(slot);
    StoreRows<kColumns>(plane_, s_.rows[slot], slot);
    __syncthreads();
    if (First()) s_.rows[slot] = {};
  }

  // Query statistics are kept for one tile: the lowest open one that will have to choose s itself.
  __device__ bool OwnsQueries(int64_t tile, const RowBits& rows) {
    const TileLife life = sealer_.Life();
    if (IsSink(life, tile) || SealedBefore(life, tile) >= 0) return false;
    PlaneHeader& header = s_.header;
    const auto owner = static_cast<uint64_t>(tile) + 1;
    if (header.query_owner == 0 || owner < header.query_owner) {
      header.query_owner = owner;
      header.query_rows = {};
    }
    if (header.query_owner != owner) return false;
    Remove(rows, &header.query_rows);
    return p_.query != nullptr;
  }

  // A warp a row.
  __device__ void KeepQueries() {
    for (int i = Warp(); i < s_.n; i += kWarps) {
      const bool known = KeepQuery<kColumns>(plane_, s_.run.index + i, s_.run.position + i);
      if (Lane() == 0) s_.known[i] = known;
    }
    __syncthreads();
    if (!First()) return;
    for (int i = 0; i < s_.n; ++i) {
      if (s_.known[i]) s_.header.query_rows.Set(s_.run.position + i);
    }
  }

  const DevicePlane& plane_;
  const PlaneWriteParams& p_;
  EncodeShared<kColumns>* encode_;
  WriterState& s_;
  TileSealer<kKey, kColumns> sealer_;
};

}  // namespace kvarn::cuda
