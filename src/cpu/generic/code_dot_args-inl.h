// SPDX-License-Identifier: Apache-2.0
//
// Integer product of a bit plane of codes with rows of 15-bit weights (queries or probabilities),
// and what the scales of record and weights make of it:
//
//   sum[r][lane] = sum_m w[r][m] * code[m][lane],  w = 128 high + low
//   out[r][lane] = gain[lane] * (sum * scale[r] + inside[r]) + outside[r] or what out held before
//
// The sums are exact integers, so levels differ by the roundings of the last line alone. Each level
// brings its own CodeDot<bits>(args) in simd/. See vec-inl.h on inclusion.

// Sums of codes of up to 4 bits fit 32 bits, high and low joined.
static_assert(int64_t{kMaxHeadDim} * 15 * 16256 <= INT32_MAX);

struct DotRow {
  float* out;  // 16 * strips lanes are written
  float scale, inside, outside;
};

struct CodeDotArgs {
  const uint8_t* codes;  // order `cpu` (format/record_layout.h)
  int strips;
  int contraction;
  const int8_t* weights;  // [rows][2][weight_stride], high then low; zero beyond the contraction
  int weight_stride;
  int n_rows;
  const DotRow* rows;
  const float* gain;    // [16 * strips]
  bool add;             // to out, instead of outside
  const uint8_t* next;  // as many codes, asked for ahead of their use; `codes` if none are known
};
