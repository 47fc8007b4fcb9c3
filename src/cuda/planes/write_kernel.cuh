// SPDX-License-Identifier: Apache-2.0
//
// Writes the rows of a call into planes, one CTA a plane, row by row as plane.cc does: whatever a
// row opens or seals is done before the next. Decisions are thread 0's; all threads carry them out.
#pragma once

#include "cuda/cache/balance.cuh"
#include "cuda/common/dynamic_shared.cuh"
#include "cuda/common/launch_kernel.h"
#include "cuda/common/small_matrix.h"
#include "cuda/encode/kernel.cuh"
#include "cuda/planes/decode_tile.cuh"
#include "cuda/planes/plane_view.cuh"

namespace kvarn::cuda {

static_assert(kBalanceThreads == kEncodeThreads);

// What thread 0 tells the others.
struct PlaneShared {
  kvarn_cuda_tile job;
  int64_t tile;  // that is opened, or -1
  TakenSlot taken;
  uint64_t due;  // slots, one bit each
  bool reopens;
  bool keeps_query;
  bool computes_balance;
  int n_rows;
  uint8_t position[kMaxGroup];
  int8_t balance[kMaxCudaHeadDim];
  BalanceShared balance_shared;
};

// Apart, so that it is compiled once.
template <bool kKey, int kColumns>
__device__ __noinline__ void SealTile(const EncodeParams& params, const kvarn_cuda_tile& job,
                                      EncodeShared<kColumns>* shared) {
  EncodeTileOf<kKey, kColumns>(params, job, shared);
}

template <bool kKey, int kColumns>
class PlaneWriter {
 public:
  __device__ PlaneWriter(const PlaneWriteParams& p, uint8_t* memory, EncodeShared<kColumns>* encode,
                         PlaneShared* shared)
      : p_(p), plane_{p, memory}, encode_(encode), shared_(shared) {}

  // Row `row` of the plane from row `index` of the call.
  __device__ void Write(int64_t row, int index, int head) {
    const int64_t tile = row / p_.encode.group;
    const auto position = static_cast<int>(row % p_.encode.group);
    if (First()) ChooseSlot(tile);
    __syncthreads();
    if (shared_->tile >= 0) {
      if (shared_->taken.slot < 0) return;  // only sinks have slots
      if (!shared_->taken.free) Seal(shared_->taken.slot);
      Open(tile, shared_->taken.slot);
    }
    StoreRow(plane_.Tiles()[tile].slot, position, index, head);
    __syncthreads();
    if (First()) Count(tile, position, row);
    __syncthreads();
    if (shared_->keeps_query) KeepQuery(position, index, head);
    for (int slot = 0; slot < p_.n_slots; ++slot) {
      if ((shared_->due >> slot & 1U) != 0) Seal(slot);
    }
    __syncthreads();
  }

 private:
  __device__ bool First() const { return threadIdx.x == 0; }

  __device__ void ChooseSlot(int64_t tile) {
    const TileEntry& entry = plane_.Tiles()[tile];
    shared_->tile = entry.state == TileState::kOpen ? -1 : tile;
    shared_->reopens = entry.state == TileState::kSealed;
    if (shared_->tile >= 0) shared_->taken = SlotToTake(plane_.Life());
  }

  __device__ void Open(int64_t tile, int slot) {
    uint16_t* exact = plane_.ExactTile(slot);
    TileEntry& entry = plane_.Tiles()[tile];
    if (shared_->reopens) {
      const uint64_t written[2] = {entry.written.word[0], entry.written.word[1]};
      DecodeTileOf<kKey, kColumns>(p_.encode, plane_.Record(tile), written, encode_, exact);
    } else {
      const int count = p_.encode.group * p_.encode.head_dim;
      for (int i = static_cast<int>(threadIdx.x); i < count; i += kEncodeThreads) exact[i] = 0;
    }
    __syncthreads();
    if (First()) {
      PlaneHeader& header = plane_.Header();
      if (shared_->reopens) {
        header.reopens += 1;
      } else {
        entry.written = {};
      }
      plane_.Slots()[slot] = SlotEntry{header.stamp + 1, tile, {}};
      entry.state = TileState::kOpen;
      entry.slot = static_cast<uint16_t>(slot);
    }
    __syncthreads();
  }

  // As exact fp16; a row with a NaN or Inf becomes zeros.
  __device__ void StoreRow(int slot, int position, int index, int head) {
    if (Warp() != 0) return;
    const int dim = p_.encode.head_dim;
    const auto* from =
        reinterpret_cast<const float*>(p_.x + index * p_.x_row_stride + head * p_.x_head_stride);
    bool finite = true;
    int saturated = 0;
    for (int d = Lane(); d < dim; d += 32) {
      const float x = from[d];
      finite = finite && (__float_as_uint(x) & 0x7F800000U) != 0x7F800000U;
      saturated += fabsf(x) > kHalfTop ? 1 : 0;
    }
    const bool keep = __all_sync(0xFFFFFFFFU, finite ? 1 : 0) != 0;
    uint16_t* to = plane_.ExactTile(slot) + position * dim;
    for (int d = Lane(); d < dim; d += 32) {
      const float x = keep ? Clamp(from[d], -kHalfTop, kHalfTop) : 0.0F;
      to[d] = __half_as_ushort(__float2half_rn(x));
    }
    kvarn_counts& counts = plane_.Header().counts;
    auto* total = reinterpret_cast<unsigned long long*>(&counts.values_saturated);
    if (keep && saturated > 0) atomicAdd(total, static_cast<unsigned long long>(saturated));
    if (!keep && Lane() == 0) counts.rows_zeroed += 1;
  }

  __device__ void Count(int64_t tile, int position, int64_t row) {
    PlaneHeader& header = plane_.Header();
    TileEntry& entry = plane_.Tiles()[tile];
    SlotEntry& slot = plane_.Slots()[entry.slot];
    entry.written.Set(position);
    slot.fresh.Set(position);
    header.stamp += 1;
    slot.stamp = header.stamp;
    shared_->keeps_query = kKey && p_.has_balance && OwnsQueries(tile, position);
    shared_->due = 0;
    for (int i = 0; i < p_.n_slots; ++i) {
      if (IsDue(plane_.Life(), i, row)) shared_->due |= uint64_t{1} << i;
    }
  }

  // Query statistics are kept for one tile: the lowest open one that will have to choose s itself.
  __device__ bool OwnsQueries(int64_t tile, int position) {
    const TileLife life = plane_.Life();
    if (IsSink(life, tile) || SealedBefore(life, tile) >= 0) return false;
    PlaneHeader& header = plane_.Header();
    const auto owner = static_cast<uint64_t>(tile) + 1;
    if (header.query_owner == 0 || owner < header.query_owner) {
      header.query_owner = owner;
      header.query_rows = {};
    }
    if (header.query_owner != owner) return false;
    header.query_rows.Clear(position);
    return p_.query != nullptr;
  }

  __device__ void KeepQuery(int position, int index, int head) {
    const auto d = static_cast<int>(threadIdx.x);
    const bool mine = d < p_.encode.head_dim;
    const uint8_t* from = p_.query + index * p_.query_row_stride +
                          static_cast<int64_t>(head) * p_.heads_per_kv * p_.query_head_stride;
    const float rms = RmsOfHeads(mine ? p_.heads_per_kv : 0, [&](int h) {
      return reinterpret_cast<const float*>(from + h * p_.query_head_stride)[d];
    });
    __syncthreads();                                       // all have seen that it is kept
    if (mine && isnan(rms)) shared_->keeps_query = false;  // as if not known
    __syncthreads();
    if (!shared_->keeps_query) return;
    if (mine) plane_.QueryRow(position)[d] = __half_as_ushort(__float2half_rn(rms));
    if (First()) plane_.Header().query_rows.Set(position);
    __syncthreads();
  }

  // Encodes the tile of a slot into its record and frees the slot.
  __device__ void Seal(int slot) {
    if (First()) DescribeSeal(slot);
    __syncthreads();
    if (kKey && p_.has_balance && shared_->computes_balance) ComputeBalance(slot);
    EncodeParams params = p_.encode;
    params.counts = &plane_.Header().counts;
    SealTile<kKey, kColumns>(params, shared_->job, encode_);
    __syncthreads();
    if (First()) {
      PlaneHeader& header = plane_.Header();
      const int64_t tile = plane_.Slots()[slot].tile;
      TileEntry& entry = plane_.Tiles()[tile];
      plane_.Slots()[slot] = SlotEntry{};
      entry.state = TileState::kSealed;
      entry.slot = 0;
      header.seals += 1;
      if (header.query_owner == static_cast<uint64_t>(tile) + 1) header.query_owner = 0;
    }
    __syncthreads();
  }

  __device__ void DescribeSeal(int slot) {
    const SlotEntry& taken = plane_.Slots()[slot];
    const TileEntry& entry = plane_.Tiles()[taken.tile];
    kvarn_cuda_tile job = {};
    job.rows = plane_.ExactTile(slot);
    job.row_stride = 2 * int64_t{p_.encode.head_dim};
    job.record = plane_.Record(taken.tile);
    job.written[0] = entry.written.word[0];
    job.written[1] = entry.written.word[1];
    if (kKey && p_.has_balance) {
      const int64_t before = SealedBefore(plane_.Life(), taken.tile);
      const bool survivors = !(taken.fresh == entry.written);
      shared_->computes_balance = before < 0 && !survivors;
      if (!shared_->computes_balance) {
        const uint8_t* from =
            plane_.Record(before >= 0 ? before : taken.tile) + p_.encode.layout.balance;
        for (int d = 0; d < p_.encode.head_dim; ++d) {
          shared_->balance[d] = static_cast<int8_t>(from[d]);
        }
      }
      job.balance = shared_->balance;
      shared_->n_rows = 0;
      for (int g = 0; g < p_.encode.group; ++g) {
        if (entry.written.Get(g)) shared_->position[shared_->n_rows++] = static_cast<uint8_t>(g);
      }
    }
    shared_->job = job;
  }

  __device__ void ComputeBalance(int slot) {
    const uint16_t* rows = plane_.ExactTile(slot);
    const int dim = p_.encode.head_dim;
    const PlaneHeader& header = plane_.Header();
    const bool known = header.query_owner == static_cast<uint64_t>(plane_.Slots()[slot].tile) + 1;
    const int eighths = BalanceOf(
        shared_->n_rows, dim, known,
        [&](int i, int d) { return FromHalf(rows[shared_->position[i] * dim + d]); },
        [&](int i, int d) {
          const int g = shared_->position[i];
          return header.query_rows.Get(g) ? FromHalf(plane_.QueryRow(g)[d]) : NAN;
        },
        &shared_->balance_shared);
    const auto d = static_cast<int>(threadIdx.x);
    if (d < dim) shared_->balance[d] = static_cast<int8_t>(eighths);
    __syncthreads();
  }

  const PlaneWriteParams& p_;
  DevicePlane plane_;
  EncodeShared<kColumns>* encode_;
  PlaneShared* shared_;
};

template <bool kKey, int kColumns>
__global__ void __launch_bounds__(kEncodeThreads, 1)
    PlaneWriteKernel(const __grid_constant__ PlaneWriteParams p) {
  __shared__ PlaneShared shared;
  const auto head = static_cast<int>(blockIdx.x);
  const auto stream = static_cast<int>(blockIdx.y);
  uint8_t* memory =
      p.planes + (static_cast<int64_t>(stream) * p.n_kv_heads + head) * p.plane_stride;
  PlaneWriter<kKey, kColumns> writer(p, memory, DynamicShared<EncodeShared<kColumns>>(), &shared);
  for (int index = 0; index < p.n_writes; ++index) {
    const int64_t row = p.rows[index] - stream * p.n_rows;
    if (row >= 0 && row < p.n_rows) writer.Write(row, index, head);
  }
}

// Host side of one instance.
template <bool kKey, int kColumns>
void LaunchPlaneWrite(const PlaneWriteParams& params, int n_streams, void* stream) {
  constexpr int kBytes = static_cast<int>(sizeof(EncodeShared<kColumns>));
  const auto kernel = PlaneWriteKernel<kKey, kColumns>;
  cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                       cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const dim3 grid(static_cast<unsigned>(params.n_kv_heads), static_cast<unsigned>(n_streams));
  LaunchKernel(kernel, grid, kEncodeThreads, params, stream, kBytes);
}
template <bool kKey>
void LaunchPlaneWrite(const PlaneWriteParams& params, int n_streams, void* stream) {
  const int columns = (params.encode.head_dim + 31) / 32;
  if (columns <= 2) return LaunchPlaneWrite<kKey, 2>(params, n_streams, stream);
  if (columns <= 4) return LaunchPlaneWrite<kKey, 4>(params, n_streams, stream);
  LaunchPlaneWrite<kKey, 8>(params, n_streams, stream);
}

}  // namespace kvarn::cuda
