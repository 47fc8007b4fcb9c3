// SPDX-License-Identifier: Apache-2.0
#include "reference_decoder.h"

#include <cmath>
#include <cstddef>

#include "reference_hadamard.h"
#include "reference_half.h"

namespace kvarn_reference {

std::vector<double> DecodeRotated(const Record& record) {
  const Shape& shape = record.shape;
  std::vector<double> out;
  for (int g = 0; g < shape.group; ++g) {
    for (int d = 0; d < shape.head_dim; ++d) {
      const double code = record.CodeAt(d, g);
      const auto line = static_cast<size_t>(shape.key ? d : g);
      const auto item = static_cast<size_t>(shape.key ? g : d);
      const double a = HalfToDouble(record.scale[line]);
      const double z = HalfToDouble(record.zero[line]);
      const double other = HalfToDouble(record.other[item]);
      if (shape.HasBalance()) {
        out.push_back((code - shape.Q() / 2.0) * a * other + z);
      } else {
        out.push_back((code * a + z) * other);
      }
    }
  }
  return out;
}

std::vector<double> Decode(const Record& record) {
  const Shape& shape = record.shape;
  const auto dim = static_cast<size_t>(shape.head_dim);
  const std::vector<double> rotated = DecodeRotated(record);
  const std::vector<double>& h = DenseHadamard(shape.head_dim);
  std::vector<double> out(rotated.size());
  for (size_t g = 0; g < static_cast<size_t>(shape.group); ++g) {
    const double* from = rotated.data() + g * dim;
    for (size_t d = 0; d < dim; ++d) {  // times H transposed: row d of H
      double sum = 0.0;
      for (size_t j = 0; j < dim; ++j) sum += from[j] * h[d * dim + j];
      if (shape.HasBalance()) sum *= std::exp2(-record.balance[d] / 8.0);
      out[g * dim + d] = sum;
    }
  }
  return out;
}

}  // namespace kvarn_reference
