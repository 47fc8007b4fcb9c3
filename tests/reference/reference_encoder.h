// SPDX-License-Identifier: Apache-2.0
//
// The default encoders of docs/format.md sections 1 to 6, written from that text alone: scalar fp32
// loops in the documented order. Slow on purpose; for byte-exact comparison.
#ifndef KVARN_TESTS_REFERENCE_REFERENCE_ENCODER_H_
#define KVARN_TESTS_REFERENCE_REFERENCE_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference_record.h"

namespace kvarn_reference {

struct Counts {
  uint64_t rows_zeroed = 0;
  uint64_t values_saturated = 0;
};

// What an encoder gets: rows [n][head_dim]; empty `position` means 0..n-1, empty `balance` zeros.
struct EncoderInput {
  Shape shape;
  int n_rows = 0;
  std::vector<float> rows;
  std::vector<int> position;
  std::vector<int8_t> balance;
};

Record Encode(const EncoderInput& input, Counts* counts);

// Rows with a NaN or Inf become zeros, others are clamped to the fp16 range; both are counted.
std::vector<float> Sanitise(const std::vector<float>& rows, int head_dim, Counts* counts);

namespace internal {

// Tile of n rows in the rotated frame, and how both encoders address it.
struct Tile {
  int n = 0;
  int dim = 0;
  std::vector<float> x;  // [n][dim]

  float At(int g, int d) const {
    return x[static_cast<size_t>(g) * static_cast<size_t>(dim) + static_cast<size_t>(d)];
  }
};

// max(sqrt(mean x^2), 1e-8): row sums over channels, then a sum over tokens.
float RootMeanSquare(const Tile& tile);
// k of "stored: k = trunc((exponent of g0) / 2)".
int StoredExponent(float g0);
// Factors f of the step search.
std::vector<float> StepFactors(int bits);
// x clipped to [1/2, 2].
float Gain(float numerator, float denominator);

// `positions` has one entry a row.
void EncodeKey(const Tile& tile, const std::vector<int>& positions, Record* record, Counts* counts);
void EncodeValue(const Tile& tile, const std::vector<int>& positions, Record* record,
                 Counts* counts);

}  // namespace internal
}  // namespace kvarn_reference
#endif  // KVARN_TESTS_REFERENCE_REFERENCE_ENCODER_H_
