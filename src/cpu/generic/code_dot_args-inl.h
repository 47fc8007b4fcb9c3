// SPDX-License-Identifier: Apache-2.0
//
// Integer product of a bit plane of codes with rows of 15-bit weights (queries or probabilities):
//
//   out[r][lane] (+)= multiplier * sum_m w[r][m] * code[m][lane],  w = 128 high + low
//
// The sums are exact integers, so every level gives the same result. Each level brings its own
// CodeDot<bits>(args) in simd/. See vec-inl.h on inclusion.

struct CodeDotArgs {
  const uint8_t* codes;  // order `cpu` (format/record_layout.h)
  int strips;
  int contraction;
  const int8_t* weights;  // [rows][2][weight_stride], high then low; zero beyond the contraction
  int weight_stride;
  int rows;
  float* out;  // [rows][out_stride], 16 * strips lanes are written
  int out_stride;
  float multiplier;
  bool add;
};
