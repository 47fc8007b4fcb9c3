// SPDX-License-Identifier: Apache-2.0
//
// kvarn_decode against the double decoder, on records that no encoder would write.
#include <gtest/gtest.h>

#include <cmath>

#include "kvarn/kvarn.h"
#include "reference/reference_decoder.h"
#include "reference/reference_hadamard.h"
#include "reference/reference_half.h"
#include "support/formats.h"
#include "support/isa.h"
#include "support/random.h"

namespace kvarn_test {
namespace {

using kvarn_reference::HalfFromFloat;
using kvarn_reference::HalfToDouble;
using kvarn_reference::Record;
using kvarn_reference::Shape;

uint16_t RandomHalf(Random* random, double octaves) {
  const double x = random->Normal() * RoughExp2(random->Normal() * octaves);
  return HalfFromFloat(static_cast<float>(x), nullptr);
}

Record RandomRecord(const Shape& shape, Random* random) {
  Record record(shape);
  for (uint8_t& code : record.codes) code = static_cast<uint8_t>(random->Below(shape.Q() + 1));
  for (auto* field : {&record.scale, &record.zero, &record.other}) {
    for (uint16_t& value : *field) value = RandomHalf(random, 3.0);
  }
  for (int8_t& e : record.balance) e = static_cast<int8_t>(random->Below(255) - 127);
  return record;
}

// Norm of a token's row with every product and zero taken by magnitude: what rounding scales with.
double Magnitude(const Record& record, int g) {
  const Shape& shape = record.shape;
  double sum = 0.0;
  for (int d = 0; d < shape.head_dim; ++d) {
    const auto line = static_cast<size_t>(shape.key ? d : g);
    const auto item = static_cast<size_t>(shape.key ? g : d);
    const double a = std::fabs(HalfToDouble(record.scale[line])) * shape.Q();
    const double z = std::fabs(HalfToDouble(record.zero[line]));
    const double other = std::fabs(HalfToDouble(record.other[item]));
    const double top = shape.HasBalance() ? a * other + z : (a + z) * other;
    sum += top * top;
  }
  return std::sqrt(sum);
}

// Reconstruction rounds at most four times, the rotation log2 B + order + 2 times (see
// rotation_test.cc), undoing the balance twice; each at 2^-24 of the magnitudes.
TEST(Decode, MatchesDoublePrecision) {
  uint64_t seed = 1;
  for (const int dim : {32, 40, 80, 96, 128, 184, 192, 256, 576}) {
    for (const int bits : kBits) {
      for (int variant = 0; variant < 4; ++variant) {
        const Shape shape = {variant % 2 == 0, variant / 2 == 0, bits, kGroups[seed % 2], dim};
        Random random(seed++);
        const Record record = RandomRecord(shape, &random);
        const std::vector<double> want = kvarn_reference::Decode(record);
        const kvarn_reference::Hadamard& h = kvarn_reference::FindHadamard(dim);
        const double rounding = (4 + std::log2(h.block) + h.order + 2 + 2) * 0x1p-24;
        const kvarn_format format =
            ToFormat(shape, variant % 2 == 0 ? KVARN_ORDER_PORTABLE : KVARN_ORDER_CPU);
        const std::vector<uint8_t> bytes =
            format.order == KVARN_ORDER_PORTABLE ? ToPortable(record) : ToCpu(record);
        for (const std::string& isa : AvailableIsas()) {
          const ForcedIsa forced(isa);
          std::vector<float> got(want.size(), NAN);
          ASSERT_EQ(kvarn_decode(&format, bytes.data(), got.data()), KVARN_OK);
          for (int g = 0; g < shape.group; ++g) {
            const double bound = rounding * Magnitude(record, g);
            for (int d = 0; d < dim; ++d) {
              const auto at = static_cast<size_t>(g * dim + d);
              const double unbalance =
                  shape.HasBalance() ? std::exp2(-record.balance[static_cast<size_t>(d)] / 8.0)
                                     : 1.0;
              ASSERT_NEAR(got[at], want[at], bound * unbalance)
                  << isa << ", " << Describe(shape) << ", seed " << seed - 1 << ", token " << g
                  << ", channel " << d;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvarn_test
