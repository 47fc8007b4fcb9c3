// SPDX-License-Identifier: Apache-2.0
//
// The running softmax of a block of query rows. See vec-inl.h on inclusion.

// exp(x) for x <= 80; below -87 it is 0. Degree-5 polynomial after reduction by ln 2, relative
// error below 3e-7.
KVARN_INLINE Vf Exp(Vf x) {
  const Vf magic = Fill(12582912.0F);  // 1.5 * 2^23: the sum's low bits are the rounded number
  const Vf clamped = Max(x, Fill(-87.0F));
  const Vf shifted = Fma(clamped, Fill(1.44269504088896341F), magic);
  const Vf n = shifted - magic;
  const Vf r = Fma(n, Fill(2.12194440e-4F), Fma(n, Fill(-0.693359375F), clamped));
  Vf p = Fma(r, Fill(8.2975123078e-3F), Fill(4.1916370392e-2F));
  p = Fma(p, r, Fill(1.6667582095e-1F));
  p = Fma(p, r, Fill(4.9998885393e-1F));
  p = Fma(p, r, Fill(9.9999970198e-1F));
  p = Fma(p, r, Fill(1.0F));
  const Vi scaled = reinterpret_cast<Vi>(p) + (reinterpret_cast<Vi>(shifted) << 23);
  return x < -87.0F ? Fill(0.0F) : reinterpret_cast<Vf>(scaled);
}
KVARN_INLINE float ExpF(float x) { return Exp(Fill(x))[0]; }

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

// Soft-cap and mask, then the reference of row r for this tile. False if there is nothing to add.
template <int kGroup>
KVARN_INLINE bool PrepareRow(AttendState* s, int r, float* score) {
  if (s->sight[r] == Sight::kNothing) return false;
  if (s->shape->softcap != 0.0F || s->sight[r] != Sight::kAll) MaskScores(*s, r, kGroup, score);
  Vf top = Load(score);
#pragma GCC unroll 8
  for (int g = kWidth; g < kGroup; g += kWidth) top = Max(top, Load(score + g));
  const float before = s->task->partial.max[r];
  if (before > kMinusInfinity && !AnyLane(top > before + kHeadRoom)) return true;
  const float largest = MaxLanes(top);
  if (!(largest > kMinusInfinity)) return false;  // every column -inf (or NaN)
  if (largest > before) MoveReference(s, r, largest);
  return true;
}

// The running softmax; `score` becomes probabilities relative to the reference of the row. A row
// that sees nothing gets zeros.
template <int kGroup>
static void UpdateSoftmax(AttendState* s) {
  for (int r = 0; r < s->rows; ++r) {
    float* p = s->score + static_cast<int64_t>(r) * kMaxGroup;
    if (!PrepareRow<kGroup>(s, r, p)) {
      __builtin_memset(p, 0, sizeof(float) * kGroup);
      continue;
    }
    const float reference = s->task->partial.max[r];
    Vf sum = {};
    for (int g = 0; g < kGroup; g += kWidth) {
      const Vf e = Exp(Load(p + g) - reference);
      Store(p + g, e);
      sum = sum + e;
    }
    s->task->partial.sum[r] = s->task->partial.sum[r] + SumLanes(sum);
  }
}

// The running softmax where all rows read the V tile from `record`: the probabilities become
// weights at once.
template <int kGroup>
static void UpdateSoftmaxAndFold(AttendState* s, const uint8_t* record) {
  LoadValueScales(s, record);
  for (int r = 0; r < s->rows; ++r) {
    float* score = s->score + static_cast<int64_t>(r) * kMaxGroup;
    if (!PrepareRow<kGroup>(s, r, score)) {
      FoldNothing(s, r);
      continue;
    }
    const float reference = s->task->partial.max[r];
    const float sum =
        FoldRow<kGroup>(s, r, [=](int i) { return Exp(Load(score + i * kWidth) - reference); });
    s->task->partial.sum[r] = s->task->partial.sum[r] + sum;
  }
}
