// SPDX-License-Identifier: Apache-2.0
//
// The running softmax of a block of query rows. See vec-inl.h on inclusion.

// exp(x) of kCount vectors, x <= 80; below -87 it is 0. Degree-5 polynomial after reduction by ln
// 2, relative error below 3e-7. Each step is taken for all vectors before the next: a processor
// holds too few waiting instructions to overlap whole chains by itself.
template <int kCount>
KVARN_INLINE void ExpAll(Vf* x) {
  const Vf magic = Fill(12582912.0F);  // 1.5 * 2^23: the sum's low bits are the rounded number
  Vf clamped[kCount], shifted[kCount], r[kCount], p[kCount];
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) clamped[i] = Max(x[i], Fill(-87.0F));
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) {
    shifted[i] = Fma(clamped[i], Fill(1.44269504088896341F), magic);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) p[i] = shifted[i] - magic;
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) r[i] = Fma(p[i], Fill(-0.693359375F), clamped[i]);
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) r[i] = Fma(p[i], Fill(2.12194440e-4F), r[i]);
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) p[i] = Fma(r[i], Fill(8.2975123078e-3F), Fill(4.1916370392e-2F));
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) p[i] = Fma(p[i], r[i], Fill(1.6667582095e-1F));
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) p[i] = Fma(p[i], r[i], Fill(4.9998885393e-1F));
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) p[i] = Fma(p[i], r[i], Fill(9.9999970198e-1F));
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) p[i] = Fma(p[i], r[i], Fill(1.0F));
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) {
    const Vi scaled = reinterpret_cast<Vi>(p[i]) + (reinterpret_cast<Vi>(shifted[i]) << 23);
    x[i] = x[i] < -87.0F ? Vf{} : reinterpret_cast<Vf>(scaled);
  }
}
KVARN_INLINE float ExpF(float x) {
  Vf v = Fill(x);
  ExpAll<1>(&v);
  return v[0];
}

// Scores may exceed the reference of the running softmax by this much before it follows them: what
// counts is the ratio of probabilities, and a reference that stays spares the sums a pass. Exp's
// argument rounds by 2^-24 of it more than with the maximum.
static const float kHeadRoom = 2.0F;

// Makes `reference` the one of row r.
static void MoveReference(AttendState* s, int r, float reference) {
  const AttentionPartial& partial = s->task->partial;
  const float before = partial.max[r];
  partial.max[r] = reference;
  if (!(before > kMinusInfinity)) return;  // nothing has been added yet
  const float shrink = ExpF(before - reference);
  partial.sum[r] = partial.sum[r] * shrink;
  float* rotated = partial.rotated + static_cast<int64_t>(r) * s->value_stride;
  float* plain = partial.plain + static_cast<int64_t>(r) * s->value_stride;
  for (int d = 0; d < s->value_stride; d += kWidth) {
    Store(rotated + d, Load(rotated + d) * shrink);
    Store(plain + d, Load(plain + d) * shrink);
  }
}

// Soft-cap and mask of the scores of row r.
static void MaskScores(const AttendState& s, int r, int group, float* score) {
  const float softcap = s.shape->softcap;
  if (softcap != 0.0F) {
    for (int g = 0; g < group; ++g) score[g] = softcap * __builtin_tanhf(score[g] / softcap);
  }
  if (s.sight[r] == Sight::kAll) return;
  const float* mask = s.mask + static_cast<int64_t>(s.mask_row[r]) * kMaxGroup;
  const float slope = s.slope[r];
  for (int g = 0; g < group; g += kWidth) {
    Store(score + g, Load(score + g) + slope * Load(mask + g));
  }
}

// Soft-cap and mask, then the reference of row r for this tile. The score of what it does not see
// becomes -inf.
template <int kGroup>
KVARN_INLINE void PrepareRow(AttendState* s, int r) {
  float* score = s->score + static_cast<int64_t>(r) * kMaxGroup;
  bool nothing = s->sight[r] == Sight::kNothing;
  if (!nothing) {
    if (s->shape->softcap != 0.0F || s->sight[r] != Sight::kAll) MaskScores(*s, r, kGroup, score);
    Vf top = Load(score);
#pragma GCC unroll 8
    for (int g = kWidth; g < kGroup; g += kWidth) top = Max(top, Load(score + g));
    const float before = s->task->partial.max[r];
    if (before > kMinusInfinity && !AnyLane(top > before + kHeadRoom)) return;
    const float largest = MaxLanes(top);
    nothing = !(largest > kMinusInfinity);  // every column -inf (or NaN)
    if (largest > before) MoveReference(s, r, largest);
  }
  if (!nothing) return;
  for (int g = 0; g < kGroup; g += kWidth) Store(score + g, Fill(kMinusInfinity));
}

// Scores of row r relative to its reference as probabilities, four vectors of them.
KVARN_INLINE void MakeProbabilities(const AttendState& s, int r, Vf* x) {
  const float top = s.task->partial.max[r];
  const Vf reference = Fill(top > kMinusInfinity ? top : 0.0F);  // -inf: nothing seen so far
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) x[i] = x[i] - reference;
  ExpAll<4>(x);
}

// The running softmax; `score` becomes probabilities relative to the reference of the row, zeros
// where it sees nothing.
template <int kGroup>
static void UpdateSoftmax(AttendState* s) {
  for (int r = 0; r < s->rows; ++r) {
    PrepareRow<kGroup>(s, r);
    float* p = s->score + static_cast<int64_t>(r) * kMaxGroup;
    Vf sum = {};
    for (int g = 0; g < kGroup; g += 4 * kWidth) {
      Vf x[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) x[i] = Load(p + g + i * kWidth);
      MakeProbabilities(*s, r, x);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        Store(p + g + i * kWidth, x[i]);
        sum = sum + x[i];
      }
    }
    s->task->partial.sum[r] = s->task->partial.sum[r] + SumLanes(sum);
  }
}

// The running softmax where all rows read the V tile from `record`: the probabilities become
// weights at once.
template <int kGroup>
static void UpdateSoftmaxAndFold(AttendState* s, const uint8_t* record) {
  BeginWeights(s, record);
  for (int r = 0; r < s->rows; ++r) PrepareRow<kGroup>(s, r);
  float sum[kQueryBlock];
  FoldRows<kGroup>(s, [s](int r, Vf* x) { MakeProbabilities(*s, r, x); }, sum);
  for (int r = 0; r < s->rows; ++r) s->task->partial.sum[r] += sum[r];
}
