// SPDX-License-Identifier: Apache-2.0
//
// The V encoder of docs/format.md section 6 on one CTA.
#pragma once

#include "cuda/encode/common.cuh"

namespace kvarn::cuda {

namespace value_column {
inline constexpr int kScale = 0;    // C, then fp16(C g0 2^-k)
inline constexpr int kWeight = 1;   // wc
inline constexpr int kInverse = 2;  // 1/C
inline constexpr int kSquare = 3;   // C^2
}  // namespace value_column
namespace value_token {
inline constexpr int kScale = 0;   // r
inline constexpr int kWeight = 1;  // wt
}  // namespace value_token

__device__ __forceinline__ float Spread(const Moments& m) {
  return fmaxf(Deviation(m), sqrtf(m.mean_square) * 0.25F);
}

// C[d] = clamp(spread over tokens of x wt), wc = i0 / C.
template <int kColumns>
__device__ void ValueChannelPass(EncodeShared<kColumns>* shared,
                                 const TileRegisters<kColumns>& tile, int n, float inverse_g0) {
  const float no_centre[kColumns] = {};
  LeaveColumnMoments(shared, tile, no_centre, shared->token[value_token::kWeight], n);
  if (const int d = OwnColumn<kColumns>(); d >= 0) {
    const float spread = Spread(JoinMoments(*shared, d, n));
    const float before = shared->column[value_column::kScale][d];
    const float c = Clamp(spread, before * 1e-3F, before * 1e3F);
    shared->column[value_column::kScale][d] = c;
    shared->column[value_column::kWeight][d] = inverse_g0 / c;
  }
  __syncthreads();
}

template <int kColumns>
__device__ float ValueChannelScales(EncodeShared<kColumns>* shared,
                                    const TileRegisters<kColumns>& tile, int n, int head_dim) {
  const float no_centre[kColumns] = {};
  const float g0 = TileScale(shared, tile, no_centre, n, head_dim);
  const float inverse_g0 = 1.0F / g0;
  if (const int g = static_cast<int>(threadIdx.x); g < n) {
    shared->token[value_token::kScale][g] = 1.0F;
    shared->token[value_token::kWeight][g] = inverse_g0;
  }
  if (const int d = OwnColumn<kColumns>(); d >= 0) shared->column[value_column::kScale][d] = 1.0F;
  __syncthreads();
  ValueChannelPass(shared, tile, n, inverse_g0);
  float weight[kColumns];
  LoadColumns(*shared, value_column::kWeight, weight);
  ForEachToken(n, [&](int i, int g, bool valid) {
    const float spread = Spread(RowMoments(tile, i, no_centre, weight, head_dim));
    const float before = shared->token[value_token::kScale][g];
    const float r = Clamp(spread, before * 1e-3F, before * 1e3F);
    __syncwarp();
    if (valid && Lane() == 0) {
      shared->token[value_token::kScale][g] = r;
      shared->token[value_token::kWeight][g] = inverse_g0 / r;
    }
  });
  __syncthreads();
  ValueChannelPass(shared, tile, n, inverse_g0);
  return g0;
}

// One token, spread over a warp: y = X/C, weights C^2; both zero beyond the head dim.
template <int kColumns>
struct ValueRow {
  float y[kColumns];
  float weight[kColumns];
  int head_dim;
  float top;
  float half;

  __device__ float Code(int c, float z, float inverse_a) const {
    return RoundToCode((y[c] - z) * inverse_a + half, top);
  }
};

struct StepCentre {
  float step;
  float centre;
};

// Weighted squared error of step a about z on this lane's channels.
template <int kColumns>
__device__ float LaneError(const ValueRow<kColumns>& v, float z, float a) {
  const float inverse_a = Reciprocal(a);
  float error = 0.0F;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const float e = (v.y[c] - z) - (v.Code(c, z, inverse_a) - v.half) * a;
    error = error + e * e * v.weight[c];
  }
  return error;
}

template <int kColumns>
__device__ StepCentre ValueStep(const ValueRow<kColumns>& v, int bits) {
  float low = 3e38F;
  float high = -3e38F;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (32 * c + Lane() >= v.head_dim) continue;
    low = fminf(low, v.y[c]);
    high = fmaxf(high, v.y[c]);
  }
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    low = fminf(low, __shfl_xor_sync(0xFFFFFFFFU, low, half));
    high = fmaxf(high, __shfl_xor_sync(0xFFFFFFFFU, high, half));
  }
  const float width = high - low;
  const float middle = 0.5F * (low + high);
  if (bits == 2) {
    float first = 0.0F;
    float second = 0.0F;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      first = first + v.y[c];
      second = second + v.y[c] * v.y[c];
    }
    const float count = static_cast<float>(v.head_dim);
    const float mean = JoinLanes(first) / count;
    const float variance = fmaxf(JoinLanes(second) / count - mean * mean, 0.0F);
    const float gaussian = kGaussianStep4 * sqrtf(variance);
    const StepCentre wide = {width / 3.0F, middle};
    const StepCentre narrow = {gaussian, mean};
    const float wide_error = JoinLanes(LaneError(v, wide.centre, wide.step));
    const float narrow_error = JoinLanes(LaneError(v, narrow.centre, narrow.step));
    return wide_error < narrow_error ? wide : narrow;
  }
  const float widest = width / v.top;
  StepCentre best = {widest, middle};
  if (FractionCount(bits) == 1) return best;
  float error[6];  // all at once: the exchanges overlap
#pragma unroll
  for (int f = 0; f < 6; ++f) error[f] = LaneError(v, middle, widest * Fraction(bits, f));
#pragma unroll
  for (int f = 0; f < 6; ++f) error[f] = JoinLanes(error[f]);
  best.step = widest * Fraction(bits, 0);
  float least = error[0];
#pragma unroll
  for (int f = 1; f < 6; ++f) {
    best.step = error[f] < least ? widest * Fraction(bits, f) : best.step;
    least = fminf(error[f], least);
  }
  return best;
}

template <int kColumns>
__device__ void ValueRefit(const ValueRow<kColumns>& v, StepCentre* fit) {
  const float inverse_a = Reciprocal(fit->step);
  float w = 0.0F;
  float wb = 0.0F;
  float wbb = 0.0F;
  float we = 0.0F;
  float web = 0.0F;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const float b = v.Code(c, fit->centre, inverse_a) - v.half;
    const float e = v.y[c] - fit->centre;
    w = w + v.weight[c];
    wb = wb + v.weight[c] * b;
    wbb = wbb + v.weight[c] * b * b;
    we = we + v.weight[c] * e;
    web = web + v.weight[c] * e * b;
  }
  const float total = JoinLanes(w);
  const float sum_b = JoinLanes(wb);
  const float sum_bb = JoinLanes(wbb);
  const float sum_e = JoinLanes(we);
  const float sum_eb = JoinLanes(web);
  const float mean_b = sum_b / total;
  const float mean_e = sum_e / total;
  const float covariance = sum_eb / total - mean_e * mean_b;
  const float variance = sum_bb / total - mean_b * mean_b;
  const bool fits = total > 0.0F && covariance > 0.0F && variance > 0.0F;
  const float slope = covariance / variance;
  fit->centre = fits ? fit->centre + (mean_e - slope * mean_b) : fit->centre;
  fit->step = fits ? slope : fit->step;
}

// Final codes of one token and the gain of its step.
template <int kColumns>
__device__ float ValueGain(const ValueRow<kColumns>& v, const StepCentre& fit, bool store,
                           uint8_t* codes) {
  const float inverse_a = Reciprocal(fit.step);
  float energy = 0.0F;
  float projection = 0.0F;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const float code = v.Code(c, fit.centre, inverse_a);
    if (store) codes[32 * c + Lane()] = static_cast<uint8_t>(code);
    const float e = v.y[c] - fit.centre;
    const float we = v.weight[c] * e;
    energy = energy + we * e;
    projection = projection + we * ((code - v.half) * fit.step);
  }
  return Gain(JoinLanes(energy), JoinLanes(projection));
}

template <int kColumns>
__device__ void EncodeValueTile(const EncodeParams& params, const kvarn_cuda_tile& job,
                                EncodeShared<kColumns>* shared, TileRegisters<kColumns>* tile) {
  const int n = shared->n_rows;
  auto* record = static_cast<uint8_t*>(job.record);
  const float g0 = ValueChannelScales(shared, *tile, n, params.head_dim);
  const PowerSplit split = SplitScale(g0);
  if (const int d = OwnColumn<kColumns>(); d >= 0) {
    float c = 0.0F;
    if (d < params.head_dim) {
      const uint16_t stored =
          ToHalf(shared->column[value_column::kScale][d] * g0 * split.down, &shared->saturated);
      reinterpret_cast<uint16_t*>(record + params.layout.other)[d] = stored;
      c = FromHalf(stored);
    }
    shared->column[value_column::kInverse][d] = Reciprocal(c);
    shared->column[value_column::kSquare][d] = c * c;
  }
  __syncthreads();
  ValueRow<kColumns> v;
  v.head_dim = params.head_dim;
  v.top = static_cast<float>((1 << params.bits) - 1);
  v.half = v.top * 0.5F;
  LoadColumns(*shared, value_column::kSquare, v.weight);
  float inverse[kColumns];
  LoadColumns(*shared, value_column::kInverse, inverse);
  auto* scale = reinterpret_cast<uint16_t*>(record + params.layout.scale);
  auto* zero = reinterpret_cast<uint16_t*>(record + params.layout.zero);
  ForEachToken(n, [&](int i, int g, bool valid) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) v.y[c] = tile->x[i][c] * inverse[c];
    StepCentre fit = ValueStep(v, params.bits);
    ValueRefit(v, &fit);
    const int pos = valid ? shared->position[g] : 0;
    const float gain = ValueGain(v, fit, valid, shared->codes[pos]);
    if (valid && Lane() == 0) {
      const uint16_t step = ToHalf(fit.step * gain, &shared->saturated);
      scale[pos] = step;
      zero[pos] = ToHalf(fit.centre - FromHalf(step) * v.half, &shared->saturated);
    }
  });
  __syncthreads();
}

}  // namespace kvarn::cuda
