// SPDX-License-Identifier: Apache-2.0
//
// The rotation of docs/format.md section 2, built from its text: small matrix M, Sylvester block S.
#ifndef KVARN_TESTS_REFERENCE_REFERENCE_HADAMARD_H_
#define KVARN_TESTS_REFERENCE_REFERENCE_HADAMARD_H_

#include <cstddef>
#include <vector>

namespace kvarn_reference {

// H = (M (x) S) * scale.
struct Hadamard {
  int head_dim = 0;
  int order = 0;            // of M
  int block = 0;            // B, of S
  std::vector<int> small;   // M [order][order]
  bool orthogonal = false;  // M is a Hadamard matrix, not the identity of the fall-back
  float scale = 0.0F;

  int Small(int row, int column) const {
    return small[static_cast<size_t>(row) * static_cast<size_t>(order) +
                 static_cast<size_t>(column)];
  }
};

// head_dim must be a multiple of 8; kept for the life of the process (not thread-safe).
const Hadamard& FindHadamard(int head_dim);

// H as a dense double matrix [head_dim][head_dim]; kept likewise.
const std::vector<double>& DenseHadamard(int head_dim);

// row * H in fp32, in the order of steps that the format fixes.
void RotateRow(const Hadamard& hadamard, float* row);

}  // namespace kvarn_reference
#endif  // KVARN_TESTS_REFERENCE_REFERENCE_HADAMARD_H_
