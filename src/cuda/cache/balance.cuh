// SPDX-License-Identifier: Apache-2.0
//
// The Q-K balance of a tile from its own rows and queries (docs/format.md section 4), by one CTA.
// Compiled with --fmad=false: the operations of src/codec/balance.cc in their order.
#pragma once

#include "codec/balance_terms.h"
#include "cuda/cache/query_rms.cuh"
#include "cuda/common/ordered_sum.cuh"

namespace kvarn::cuda {

inline constexpr int kBalanceThreads = 256;  // a channel each
inline constexpr int kBalanceRows = 128;     // the longest tile

struct BalanceShared {
  float value[kBalanceThreads];
  float sum;
  uint8_t keep[kBalanceRows];   // row is finite
  uint8_t known[kBalanceRows];  // row has query statistics
  uint8_t list[kBalanceRows];   // those that have, in order
  int n_known;
};

// Over `count` terms in the order of the format: 8 interleaved partial sums, joined by halving.
template <typename Term>
__device__ __forceinline__ float SumOfTokens(int count, const Term& term) {
  float partial[8] = {};
  for (int base = 0; base < count; base += 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (base + i < count) partial[i] = partial[i] + term(base + i);
    }
  }
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) partial[i] = partial[i] + partial[i + half];
  }
  return partial[0];
}

// Mean over the channels of a value that each thread has for its own. Has barriers.
__device__ __forceinline__ float ChannelMean(float value, int dim, BalanceShared* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  shared->value[thread] = value;
  __syncthreads();
  if (thread < 32) {
    float partial = 0.0F;
    for (int d = thread; d < dim; d += 32) partial = partial + shared->value[d];
    partial = JoinLanes(partial);
    if (thread == 0) shared->sum = partial;
  }
  __syncthreads();
  const float mean = shared->sum / static_cast<float>(dim);
  __syncthreads();
  return mean;
}

// Key(g, d) is a key of the tile as fp32, Rms(g, d) the query statistics or NaN in d = 0 for a row
// that has none. The balance of thread d's channel.
template <typename Key, typename Rms>
__device__ int BalanceOf(int group, int dim, bool has_queries, const Key& key, const Rms& rms,
                         BalanceShared* shared) {
  const int d = static_cast<int>(threadIdx.x);
  const int channel = min(d, dim - 1);
  for (int g = Warp(); g < group; g += kBalanceThreads / 32) {
    bool finite = true;
    bool known = has_queries;
    for (int c = Lane(); c < dim; c += 32) {
      finite = finite && isfinite(key(g, c));
      known = known && !isnan(rms(g, c));
    }
    finite = __all_sync(0xFFFFFFFFU, finite) != 0;
    known = __all_sync(0xFFFFFFFFU, known) != 0;
    if (Lane() == 0) {
      shared->keep[g] = finite ? 1 : 0;
      shared->known[g] = known ? 1 : 0;
    }
  }
  __syncthreads();
  if (d == 0) {
    shared->n_known = 0;
    for (int g = 0; g < group; ++g) {
      if (shared->known[g] != 0) shared->list[shared->n_known++] = static_cast<uint8_t>(g);
    }
  }
  __syncthreads();
  const auto clean = [&](int g) {
    return shared->keep[g] != 0 ? fminf(fmaxf(key(g, channel), -kHalfTop), kHalfTop) : 0.0F;
  };
  const float n = static_cast<float>(group);
  const float mean = SumOfTokens(group, clean) / n;
  const float variance = SumOfTokens(group,
                                     [&](int g) {
                                       const float centred = clean(g) - mean;
                                       return centred * centred;
                                     }) /
                         n;
  const int n_known = shared->n_known;
  float query = 1.0F;
  if (n_known > 0) {
    query = SumOfTokens(n_known,
                        [&](int i) {
                          const float x = rms(shared->list[i], channel);
                          return x * x;
                        }) /
            static_cast<float>(n_known);
  }
  const float v = Floored(variance, ChannelMean(variance, dim, shared));
  const float w = Floored(query, ChannelMean(query, dim, shared));
  const float level = (Log2(w) - Log2(v)) * 0.25F;
  const float eighths = rintf((level - ChannelMean(level, dim, shared)) * 8.0F);
  return static_cast<int>(fminf(fmaxf(eighths, -127.0F), 127.0F));
}

}  // namespace kvarn::cuda
