// SPDX-License-Identifier: Apache-2.0
//
// Between the reference's shapes and the library's formats, and lists of what is legal.
#ifndef KVARN_TESTS_SUPPORT_FORMATS_H_
#define KVARN_TESTS_SUPPORT_FORMATS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "kvarn/kvarn.h"
#include "reference/reference_record.h"

namespace kvarn_test {

inline constexpr int kBits[] = {2, 3, 4, 8};
inline constexpr int kGroups[] = {64, 128};

inline std::vector<int> LegalHeadDims() {
  std::vector<int> dims;
  for (int dim = 32; dim <= 576; dim += 8) dims.push_back(dim);
  return dims;
}

inline kvarn_format ToFormat(const kvarn_reference::Shape& shape, kvarn_order order) {
  kvarn_format format = {};
  format.role = shape.key ? KVARN_KEY : KVARN_VALUE;
  format.mode = shape.balanced ? KVARN_BALANCED : KVARN_PUBLISHED;
  format.order = order;
  format.bits = shape.bits;
  format.group = shape.group;
  format.head_dim = shape.head_dim;
  return format;
}

inline kvarn_reference::Shape ToShape(const kvarn_format& format) {
  kvarn_reference::Shape shape;
  shape.key = format.role == KVARN_KEY;
  shape.balanced = format.mode == KVARN_BALANCED;
  shape.bits = format.bits;
  shape.group = format.group;
  shape.head_dim = format.head_dim;
  return shape;
}

inline std::string Describe(const kvarn_reference::Shape& shape) {
  return std::string(shape.key ? "K" : "V") + (shape.balanced ? " balanced" : " published") +
         " bits " + std::to_string(shape.bits) + " group " + std::to_string(shape.group) +
         " head dim " + std::to_string(shape.head_dim);
}

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_FORMATS_H_
