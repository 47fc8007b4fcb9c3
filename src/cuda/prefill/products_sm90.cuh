// SPDX-License-Identifier: Apache-2.0
//
// The products by the matrix instructions of four warps (sm_90a), which read K, V and queries from
// shared memory by descriptor.
#pragma once

#include "cuda/common/wgmma.cuh"
#include "cuda/prefill/products.cuh"
#include "cuda/prefill/shared_memory.cuh"

namespace kvarn::cuda {

// d = a b, or d += a b if `add`: 64 query rows, 64 slots, 16 channels.
template <bool kBf16>
__device__ __forceinline__ void MultiplyShared(float (&d)[8][4], uint64_t a, uint64_t b, bool add) {
  if constexpr (kBf16) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3])
        : "l"(a), "l"(b), "r"(add ? 1 : 0));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3])
        : "l"(a), "l"(b), "r"(add ? 1 : 0));
  }
}

template <typename Shape, bool kBf16>
__device__ __forceinline__ void StartScore(uint32_t queries, uint32_t keys, int warp, int lane,
                                           StageScores& score) {
  const Descriptor rows(queries + PanelBytes(64) * (warp / 4), 16);
  const Descriptor columns(keys, 16);
  BeginProducts();
#pragma unroll
  for (int s = 0; s < Shape::kKeySteps; ++s) {
    const int column = 32 * (s % 4);
    MultiplyShared<kBf16>(score, rows.At(PanelBytes(Shape::kRows) * (s / 4) + column),
                          columns.At(PanelBytes(kStageRows) * (s / 4) + column), s != 0);
  }
  CommitProducts();
}
template <typename Shape, bool kBf16>
__device__ __forceinline__ void Score(uint32_t queries, uint32_t keys, int warp, int lane,
                                      StageScores& score) {
  StartScore<Shape, kBf16>(queries, keys, warp, lane, score);
  WaitProducts<0>();
}

// All channels, 64 at a time: panel(first) describes those from `first` on.
template <typename Shape, bool kBf16, bool kTransposed, int kFirst = 0, typename Panel>
__device__ __forceinline__ void MultiplyChannels(const uint32_t (&weight)[4], const Panel& panel,
                                                 Outputs<Shape>& out) {
  constexpr int kLeft = Shape::kValueDim - kFirst;
  constexpr int kColumns = kLeft < 64 ? kLeft : 64;
  MultiplyRegisters<kColumns, kBf16, kTransposed>(out + kFirst / 8, weight, panel(kFirst));
  if constexpr (kLeft > 64) {
    MultiplyChannels<Shape, kBf16, kTransposed, kFirst + 64>(weight, panel, out);
  }
}

template <typename Shape>
__device__ __forceinline__ void StartAccumulateRecord(const StageWeights& weight, uint32_t values,
                                                      int lane, Outputs<Shape>& out) {
  const Descriptor columns(values, 16);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kStageRows / 16; ++k) {
    MultiplyChannels<Shape, false, false>(
        weight[k], [&](int first) { return columns.At(128 * first + 32 * k); }, out);
  }
  CommitProducts();
}

template <typename Shape, bool kBf16>
__device__ __forceinline__ void AccumulateRows(const StageWeights& weight, uint32_t values,
                                               int lane, Outputs<Shape>& out) {
  const Descriptor columns(values, PanelBytes(kStageRows));
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kStageRows / 16; ++k) {
    MultiplyChannels<Shape, kBf16, true>(
        weight[k],
        [&](int first) { return columns.At(PanelBytes(kStageRows) * (first / 64) + 128 * 16 * k); },
        out);
  }
  EndProducts();
}

}  // namespace kvarn::cuda
