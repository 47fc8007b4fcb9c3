// SPDX-License-Identifier: Apache-2.0
//
// What the workers of a cluster have found becomes the rows of its KV head: no workspace and no
// second kernel. Row r is added up by CTA r % n of the cluster, by as many of its warps as there
// are for each of its rows.
#pragma once

#include "cuda/attention/cluster/share.cuh"
#include "cuda/attention/row_output.cuh"

namespace kvarn::cuda {

// The partials of a row in the memory of the workers, first those of records.
template <typename Shape>
struct ClusterPartials {
  using Out = uint32_t;  // address in the shared memory of a CTA of the cluster
  const DecodeParams& p;
  const unsigned char* shared;
  int record_workers, row;
  bool own;  // reads the CTA's own memory alone, whatever it holds

  __device__ __forceinline__ uint32_t PlaceOf(int entry) const {
    const int past = entry - record_workers;
    const int worker = past < 0 ? entry : (Shape::kWarps << p.cluster_shift) - 1 - past;
    const int rank = own ? ClusterRank() : worker & (p.cluster_ctas - 1);
    return AddressInCta(shared + (worker >> p.cluster_shift) * Shape::kWarpBytes, rank);
  }
  __device__ __forceinline__ float2 Sums(uint32_t place) const {
    return LoadFromCluster2(place + SharedPartial<Shape>::SumsAt(row));
  }
  __device__ __forceinline__ Out OutOf(uint32_t place, int) const {
    return place + SharedPartial<Shape>::OutsAt(row);
  }
  __device__ __forceinline__ static float4 Load(Out out, int channel) {
    return LoadFromCluster4(out + 4 * channel);
  }
};

template <typename Shape>
class ClusterMerge {
 public:
  __device__ __forceinline__ ClusterMerge(const DecodeParams& p, const ClusterShare& share,
                                          unsigned char* shared, int warp, int lane)
      : p_(p),
        share_(share),
        shared_(shared),
        memory_(shared + warp * Shape::kWarpBytes),
        warp_(warp),
        lane_(lane),
        n_rows_((p.query_rows + p.cluster_ctas - 1) >> p.cluster_shift),
        split_(max(Shape::kWarps / n_rows_, 1)) {}

  // By all warps, when the partials of all workers are there. With `rehearses` by one that has no
  // units, while it would only wait: nothing comes of it but that the code is in the instruction
  // caches of the multiprocessor when it counts.
  __device__ __forceinline__ void Run(bool rehearses) {
    const int n_items = rehearses ? 1 : n_rows_ * split_;
#pragma unroll 1
    for (int base = 0; base < n_items; base += Shape::kWarps) {
      const int mine = rehearses ? 0 : (base + warp_) / split_;
      const int part = rehearses ? 0 : base + warp_ - mine * split_;
      const int row = (mine << p_.cluster_shift) + (rehearses ? 0 : ClusterRank());
      const bool works = mine < n_rows_ && row < p_.query_rows;
      const int n_records = share_.n_workers[kRecordUnits];
      const int n = n_records + share_.n_workers[kExactUnits];
      Sum total;
      if (works) {
        const ClusterPartials<Shape> partials = {p_, shared_, n_records, row, rehearses};
        total.Add(partials, part, split_, n_records, n, Shape::kValueDim,
                  reinterpret_cast<PartialItem<uint32_t>*>(memory_ + kItemsAt), lane_);
        reinterpret_cast<Sum*>(memory_ + kSumAt)[lane_] = total;
      }
      if (!rehearses) __syncthreads();
      if (works && part == 0) {
        total.Join(rehearses ? 0 : split_ - 1, [&](int i) -> const Sum& {
          const unsigned char* other = memory_ + (1 + i) * Shape::kWarpBytes + kSumAt;
          return reinterpret_cast<const Sum*>(other)[lane_];
        });
        const OutputRow to = OutputRowAt(p_, share_.sequence, share_.kv_head, row);
        StoreRow<kParts>(p_, &total, to.head, rehearses ? nullptr : to.out, Shape::kValueDim,
                         reinterpret_cast<float*>(memory_ + kBufferAt), lane_);
      }
      if (!rehearses) __syncthreads();
    }
  }

 private:
  static constexpr int kParts = (Shape::kValueDim + kPartDim - 1) / kPartDim;
  using Sum = RowSum<kParts>;
  // Of a warp, behind its partial.
  static constexpr size_t kItemsAt = AlignUp(SharedPartial<Shape>::kBytes, 16);
  static constexpr size_t kSumAt = kItemsAt + sizeof(PartialItem<uint32_t>) * kWarpSize;
  static constexpr size_t kBufferAt = kSumAt + sizeof(Sum) * kWarpSize;
  static_assert(kBufferAt + size_t{4} * kParts * kPartDim <= Shape::kBarrierAt);

  const DecodeParams& p_;
  const ClusterShare& share_;
  unsigned char* shared_;
  unsigned char* memory_;
  int warp_, lane_, n_rows_, split_;
};

}  // namespace kvarn::cuda
