// SPDX-License-Identifier: Apache-2.0
//
// Matrices of 16-bit values in shared memory, as matrix instructions read them.
#pragma once

namespace kvarn::cuda {

// Matrices lie in panels of 64 columns: rows of 128 bytes one after the other, the 16-byte chunks
// of a row swapped by swizzle.
constexpr int PanelBytes(int rows) { return 128 * rows; }
constexpr int PanelCount(int columns) { return (columns + 63) / 64; }

// Offset of 16-byte chunk `chunk` (8 columns) of row `row` of a matrix of `rows` rows in panels.
// The chunks of eight rows at one place, which a matrix instruction or `ldmatrix` reads, use
// different banks. This is the 128-byte swizzle of the matrix descriptors of sm_90.
constexpr int PanelOffset(int rows, int row, int chunk) {
  return PanelBytes(rows) * (chunk >> 3) + 128 * row + 16 * ((chunk ^ row) & 7);
}

}  // namespace kvarn::cuda
