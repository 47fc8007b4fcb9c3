// SPDX-License-Identifier: Apache-2.0
//
// The balanced K encoder of docs/format.md section 5 on one CTA.
#pragma once

#include "cuda/encode/common.cuh"

namespace kvarn::cuda {

// Rows of EncodeShared::column and ::token in this encoder.
namespace key_column {
inline constexpr int kCentre = 0;  // m, later z
inline constexpr int kWeight = 1;  // wc, later a
inline constexpr int kWidest = 2;  // A
}  // namespace key_column
namespace key_token {
inline constexpr int kScale = 0;   // t
inline constexpr int kWeight = 1;  // wt, later 1/t
}  // namespace key_token

// t[g] = clamp(std over channels of (x - m) wc).
template <int kColumns>
__device__ void KeyTokenPass(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile,
                             const float (&m)[kColumns], const float (&weight)[kColumns], int n,
                             int head_dim, float inverse_g0) {
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float t = Clamp(Deviation(RowMoments(tile, i, m, weight, head_dim)), 0.125F, 8.0F);
    if (valid && Lane() == 0) {
      shared->token[key_token::kScale][g] = t;
      shared->token[key_token::kWeight][g] = inverse_g0 / t;
    }
  });
  __syncthreads();
}

template <int kColumns>
__device__ float KeyTokenScales(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile,
                                const float (&m)[kColumns], int n, int head_dim) {
  const float g0 = TileScale(shared, tile, m, n, head_dim);
  const float inverse_g0 = 1.0F / g0;
  float weight[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) weight[c] = inverse_g0;
  KeyTokenPass(shared, tile, m, weight, n, head_dim, inverse_g0);

  LeaveColumnMoments(shared, tile, m, shared->token[key_token::kWeight], n);
  if (const int d = OwnColumn<kColumns>(); d >= 0) {
    const float r = Clamp(Deviation(JoinMoments(*shared, d, n)), 0.125F, 8.0F);
    shared->column[key_column::kWeight][d] = inverse_g0 / r;
  }
  __syncthreads();
  LoadColumns(*shared, key_column::kWeight, weight);
  KeyTokenPass(shared, tile, m, weight, n, head_dim, inverse_g0);
  return g0;
}

// Extremes of (x - m)/t of a column, and 1/t of the tokens that have them (the larger 1/t where
// several do, so that the order of tokens does not matter).
struct Extreme {
  float value;
  float inverse_t;

  // `sign` 1 keeps the greater value, -1 the lesser.
  __device__ void Join(float y, float other_inverse_t, float sign) {
    const bool beyond = sign * y > sign * value;
    const bool equal = y == value;
    inverse_t = beyond ? other_inverse_t : (equal ? fmaxf(inverse_t, other_inverse_t) : inverse_t);
    value = beyond ? y : value;
  }
};

// Leaves the greatest |(x - m)/t| of a column in partial 0.
template <int kColumns>
__device__ void KeyMagnitude(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile,
                             const float (&m)[kColumns], int n) {
  float largest[kColumns] = {};
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float inverse_t = shared->token[key_token::kWeight][g];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float y = Term((tile.x[i][c] - m[c]) * inverse_t, valid);
      largest[c] = fmaxf(largest[c], fabsf(y));
    }
  });
  LeavePartial(shared, 0, largest);
  __syncthreads();
}

template <int kColumns>
__device__ float JoinMagnitude(const EncodeShared<kColumns>& shared, int d) {
  float largest = 0.0F;
  for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, shared.partial[0][w][d]);
  return largest;
}

// Leaves the least in partials 0 and 2, the greatest in 1 and 3.
template <int kColumns>
__device__ void KeyRange(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile,
                         const float (&m)[kColumns], int n) {
  Extreme low[kColumns];
  Extreme high[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    low[c] = {3e38F, 0.0F};
    high[c] = {-3e38F, 0.0F};
  }
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float inverse_t = shared->token[key_token::kWeight][g];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float y = (tile.x[i][c] - m[c]) * inverse_t;
      low[c].Join(valid ? y : 3e38F, valid ? inverse_t : 0.0F, -1.0F);
      high[c].Join(valid ? y : -3e38F, valid ? inverse_t : 0.0F, 1.0F);
    }
  });
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int d = 32 * c + Lane();
    shared->partial[0][Warp()][d] = low[c].value;
    shared->partial[1][Warp()][d] = high[c].value;
    shared->partial[2][Warp()][d] = low[c].inverse_t;
    shared->partial[3][Warp()][d] = high[c].inverse_t;
  }
  __syncthreads();
}

struct Range {
  Extreme low;
  Extreme high;
};
template <int kColumns>
__device__ Range JoinRange(const EncodeShared<kColumns>& shared, int d) {
  Range range = {{3e38F, 0.0F}, {-3e38F, 0.0F}};
  for (int w = 0; w < kWarps; ++w) {
    range.low.Join(shared.partial[0][w][d], shared.partial[2][w][d], -1.0F);
    range.high.Join(shared.partial[1][w][d], shared.partial[3][w][d], 1.0F);
  }
  return range;
}

// Two bits: step from the rms, unless the range is narrower.
template <int kColumns>
__device__ void KeyStep2(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile,
                         const float (&m)[kColumns], int n) {
  float squares[kColumns] = {};
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float inverse_t = shared->token[key_token::kWeight][g];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float y = Term((tile.x[i][c] - m[c]) * inverse_t, valid);
      squares[c] = squares[c] + y * y;
    }
  });
  LeavePartial(shared, 4, squares);
  KeyMagnitude(shared, tile, m, n);
  if (const int d = OwnColumn<kColumns>(); d >= 0) {
    const float extreme = JoinMagnitude(*shared, d);
    const float rms = sqrtf(JoinColumn(*shared, 4, d) / static_cast<float>(n));
    shared->column[key_column::kWeight][d] = fminf(kGaussianStep4 * rms, 2.0F * extreme / 3.0F);
  }
  __syncthreads();
}

// Three bits and more: centre between the extremes, then the best fraction of the range.
template <int kColumns>
__device__ void KeyStepGrid(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile,
                            int n, int bits, float (&m)[kColumns]) {
  const float top = static_cast<float>((1 << bits) - 1);
  const float half = top * 0.5F;
  const int own = OwnColumn<kColumns>();
  for (int round = 0; round < 3; ++round) {
    KeyRange(shared, tile, m, n);
    if (own >= 0) {
      const Range range = JoinRange(*shared, own);
      shared->column[key_column::kCentre][own] =
          shared->column[key_column::kCentre][own] +
          (range.low.value + range.high.value) / (range.low.inverse_t + range.high.inverse_t);
    }
    __syncthreads();
    LoadColumns(*shared, key_column::kCentre, m);
  }
  KeyMagnitude(shared, tile, m, n);
  if (own >= 0) {
    const float widest = 2.0F * JoinMagnitude(*shared, own) / top;
    shared->column[key_column::kWidest][own] = widest;
    shared->column[key_column::kWeight][own] = widest;  // fraction 1
  }
  __syncthreads();
  if (FractionCount(bits) == 1) return;
  float widest[kColumns];
  LoadColumns(*shared, key_column::kWidest, widest);
#pragma unroll 1
  for (int f = 0; f < 6; ++f) {
    const float fraction = Fraction(bits, f);
    float step[kColumns];
    float inverse[kColumns];
    float error[kColumns] = {};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      step[c] = widest[c] * fraction;
      inverse[c] = Reciprocal(step[c]);
    }
    ForEachToken(n, [&](int i, int g, bool valid) {
      const float inverse_t = shared->token[key_token::kWeight][g];
      const float t = shared->token[key_token::kScale][g];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float y = (tile.x[i][c] - m[c]) * inverse_t;
        const float code = RoundToCode(y * inverse[c] + half, top);
        const float e = (y - (code - half) * step[c]) * t;
        error[c] = error[c] + Term(e * e, valid);
      }
    });
    LeavePartial(shared, f, error);
  }
  __syncthreads();
  if (own >= 0) {
    const float wide = shared->column[key_column::kWidest][own];
    float best = wide * Fraction(bits, 0);
    float best_error = JoinColumn(*shared, 0, own);
    for (int f = 1; f < 6; ++f) {
      const float error = JoinColumn(*shared, f, own);
      best = error < best_error ? wide * Fraction(bits, f) : best;
      best_error = fminf(error, best_error);
    }
    shared->column[key_column::kWeight][own] = best;
  }
  __syncthreads();
}

// Least squares of X on (c - Q/2) t; then z as the record stores it.
template <int kColumns>
__device__ void KeyRefit(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile, int n,
                         float top, const float (&z)[kColumns]) {
  const float half = top * 0.5F;
  float a[kColumns];
  LoadColumns(*shared, key_column::kWeight, a);
  float sum[4][kColumns] = {};  // b, b b, e, e b
#pragma unroll
  for (int c = 0; c < kColumns; ++c) a[c] = Reciprocal(a[c]);
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float inverse_t = shared->token[key_token::kWeight][g];
    const float t = shared->token[key_token::kScale][g];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float e = Term(tile.x[i][c] - z[c], valid);
      const float code = RoundToCode(e * inverse_t * a[c] + half, top);
      const float b = Term((code - half) * t, valid);
      sum[0][c] = sum[0][c] + b;
      sum[1][c] = sum[1][c] + b * b;
      sum[2][c] = sum[2][c] + e;
      sum[3][c] = sum[3][c] + e * b;
    }
  });
#pragma unroll
  for (int k = 0; k < 4; ++k) LeavePartial(shared, k, sum[k]);
  __syncthreads();
  if (const int d = OwnColumn<kColumns>(); d >= 0) {
    const float count = static_cast<float>(n);
    const float mean_b = JoinColumn(*shared, 0, d) / count;
    const float mean_e = JoinColumn(*shared, 2, d) / count;
    const float covariance = JoinColumn(*shared, 3, d) / count - mean_e * mean_b;
    const float variance = JoinColumn(*shared, 1, d) / count - mean_b * mean_b;
    float centre = shared->column[key_column::kCentre][d];
    if (covariance > 0.0F && variance > 0.0F) {
      const float slope = covariance / variance;
      shared->column[key_column::kWeight][d] = slope;
      centre = centre + (mean_e - slope * mean_b);
    }
    shared->column[key_column::kCentre][d] = FromHalf(ToHalf(centre, &shared->saturated));
  }
  __syncthreads();
}

// Final codes, then the gain of each channel.
template <int kColumns>
__device__ void KeyCodes(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile, int n,
                         float top, const float (&z)[kColumns]) {
  const float half = top * 0.5F;
  float a[kColumns];
  float inverse[kColumns];
  float energy[kColumns] = {};
  float projection[kColumns] = {};
  LoadColumns(*shared, key_column::kWeight, a);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) inverse[c] = Reciprocal(a[c]);
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float inverse_t = shared->token[key_token::kWeight][g];
    const float t = shared->token[key_token::kScale][g];
    uint8_t* codes = shared->codes[valid ? shared->position[g] : 0];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float e = Term(tile.x[i][c] - z[c], valid);
      const float code = RoundToCode(e * inverse_t * inverse[c] + half, top);
      if (valid) codes[32 * c + Lane()] = static_cast<uint8_t>(code);
      const float p = (code - half) * a[c] * t;
      energy[c] = energy[c] + e * e;
      projection[c] = projection[c] + Term(e * p, valid);
    }
  });
  LeavePartial(shared, 0, energy);
  LeavePartial(shared, 1, projection);
  __syncthreads();
  if (const int d = OwnColumn<kColumns>(); d >= 0) {
    shared->column[key_column::kWeight][d] =
        shared->column[key_column::kWeight][d] *
        Gain(JoinColumn(*shared, 0, d), JoinColumn(*shared, 1, d));
  }
  __syncthreads();
}

// Unit gain of each token, with the channels' final steps.
template <int kColumns>
__device__ void KeyTokenGain(EncodeShared<kColumns>* shared, const TileRegisters<kColumns>& tile,
                             int n, float half, const float (&z)[kColumns]) {
  float a[kColumns];
  LoadColumns(*shared, key_column::kWeight, a);
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float t = shared->token[key_token::kScale][g];
    const uint8_t* codes = shared->codes[valid ? shared->position[g] : 0];
    float energy = 0.0F;
    float projection = 0.0F;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float e = tile.x[i][c] - z[c];
      const float p = (static_cast<float>(codes[32 * c + Lane()]) - half) * a[c] * t;
      energy = energy + e * e;
      projection = projection + e * p;
    }
    const float gain = Gain(JoinLanes(energy), JoinLanes(projection));
    __syncwarp();
    if (valid && Lane() == 0) shared->token[key_token::kScale][g] = t * gain;
  });
  __syncthreads();
}

template <int kColumns>
__device__ void EncodeKeyTile(const EncodeParams& params, const kvarn_cuda_tile& job,
                              EncodeShared<kColumns>* shared, TileRegisters<kColumns>* tile) {
  const int n = shared->n_rows;
  const float top = static_cast<float>((1 << params.bits) - 1);
  const int own = OwnColumn<kColumns>();
  float sum[kColumns] = {};
  ForEachToken(n, [&](int i, int, bool valid) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sum[c] = sum[c] + Term(tile->x[i][c], valid);
  });
  LeavePartial(shared, 0, sum);
  __syncthreads();
  if (own >= 0) {
    shared->column[key_column::kCentre][own] = JoinColumn(*shared, 0, own) / static_cast<float>(n);
  }
  __syncthreads();
  float m[kColumns];
  LoadColumns(*shared, key_column::kCentre, m);
  const float g0 = KeyTokenScales(shared, *tile, m, n, params.head_dim);
  if (const int g = static_cast<int>(threadIdx.x); g < n) {
    const float t = shared->token[key_token::kScale][g] * g0;
    shared->token[key_token::kScale][g] = t;
    shared->token[key_token::kWeight][g] = 1.0F / t;
  }
  __syncthreads();
  if (params.bits == 2) {
    KeyStep2(shared, *tile, m, n);
  } else {
    KeyStepGrid(shared, *tile, n, params.bits, m);
  }
  KeyRefit(shared, *tile, n, top, m);
  LoadColumns(*shared, key_column::kCentre, m);  // z from here on
  KeyCodes(shared, *tile, n, top, m);
  KeyTokenGain(shared, *tile, n, top * 0.5F, m);

  const PowerSplit split = SplitScale(g0);
  auto* record = static_cast<uint8_t*>(job.record);
  auto* token_scale = reinterpret_cast<uint16_t*>(record + params.layout.other);
  bool token = false;
  if (const int g = static_cast<int>(threadIdx.x); g < n) {
    const uint16_t t = ToHalf(shared->token[key_token::kScale][g] * split.down, &shared->saturated);
    token_scale[shared->position[g]] = t;
    token = t != 0;
  }
  const bool any_token = __syncthreads_or(token ? 1 : 0) != 0;
  if (own >= 0 && own < params.head_dim) {
    auto* scale = reinterpret_cast<uint16_t*>(record + params.layout.scale);
    auto* zero = reinterpret_cast<uint16_t*>(record + params.layout.zero);
    scale[own] =
        any_token ? ToHalf(shared->column[key_column::kWeight][own] * split.up, &shared->saturated)
                  : uint16_t{0};
    zero[own] = ToHalf(shared->column[key_column::kCentre][own], &shared->saturated);
    record[params.layout.balance + own] =
        job.balance != nullptr ? static_cast<uint8_t>(job.balance[own]) : uint8_t{0};
  }
}

}  // namespace kvarn::cuda
