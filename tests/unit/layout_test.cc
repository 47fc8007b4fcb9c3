// SPDX-License-Identifier: Apache-2.0
//
// Sizes and byte orders of records against docs/format.md section 3.
#include <gtest/gtest.h>

#include "kvarn/kvarn.h"
#include "reference/reference_record.h"
#include "support/formats.h"
#include "support/random.h"

namespace kvarn_test {
namespace {

using kvarn_reference::Record;
using kvarn_reference::Shape;

std::vector<Shape> AllShapes(const std::vector<int>& dims) {
  std::vector<Shape> shapes;
  for (const int dim : dims) {
    for (const int bits : kBits) {
      for (const int group : kGroups) {
        for (const bool key : {true, false}) {
          for (const bool balanced : {true, false}) {
            shapes.push_back({key, balanced, bits, group, dim});
          }
        }
      }
    }
  }
  return shapes;
}

size_t ScaleBytes(const Shape& shape) {
  const auto dim = static_cast<size_t>(shape.head_dim);
  const auto group = static_cast<size_t>(shape.group);
  if (shape.key) return 2 * dim + 2 * dim + 2 * group + (shape.balanced ? dim : 0);
  return 2 * dim + 2 * group + 2 * group;
}

size_t Portable(const Shape& shape) {
  return static_cast<size_t>(shape.head_dim * shape.group * shape.bits / 8) + ScaleBytes(shape);
}

size_t Cpu(const Shape& shape) {
  const int lanes = shape.key ? shape.group : shape.head_dim;
  const int contraction = shape.key ? shape.head_dim : shape.group;
  const auto plane = [&](int bits) {
    const int per_unit = 32 / bits;  // a byte holds 8/bits codes, a lane of a unit 4 bytes
    const int units = (contraction + per_unit - 1) / per_unit;
    return static_cast<size_t>((lanes + 15) / 16 * units * 64);
  };
  const size_t codes = shape.bits == 3 ? plane(2) + plane(1) : plane(shape.bits);
  return (codes + ScaleBytes(shape) + 63) / 64 * 64;
}

size_t BytesOf(const Shape& shape, kvarn_order order) {
  const kvarn_format format = ToFormat(shape, order);
  return kvarn_record_bytes(&format);
}

TEST(Layout, SizesOfEveryLegalFormat) {
  for (const Shape& shape : AllShapes(LegalHeadDims())) {
    ASSERT_EQ(BytesOf(shape, KVARN_ORDER_PORTABLE), Portable(shape)) << Describe(shape);
    ASSERT_EQ(BytesOf(shape, KVARN_ORDER_CPU), Cpu(shape)) << Describe(shape);
  }
}

TEST(Layout, SizesThatTheDocumentNames) {
  EXPECT_EQ(BytesOf({true, true, 4, 128, 128}, KVARN_ORDER_PORTABLE), 9088U);
  EXPECT_EQ(BytesOf({true, true, 4, 128, 128}, KVARN_ORDER_CPU), 9088U);
  EXPECT_EQ(BytesOf({true, true, 2, 128, 128}, KVARN_ORDER_PORTABLE), 4992U);
  EXPECT_EQ(BytesOf({false, true, 2, 128, 128}, KVARN_ORDER_PORTABLE), 4864U);
  EXPECT_EQ(BytesOf({false, true, 2, 128, 128}, KVARN_ORDER_CPU), 4864U);
  EXPECT_EQ(BytesOf({true, false, 4, 128, 128}, KVARN_ORDER_PORTABLE), 8960U);
}

// A record of random bits: every code and scale pattern is a legal record.
Record RandomRecord(const Shape& shape, uint64_t seed) {
  Random random(seed);
  Record record(shape);
  for (uint8_t& code : record.codes) code = static_cast<uint8_t>(random.Below(shape.Q() + 1));
  for (auto* field : {&record.scale, &record.zero, &record.other}) {
    for (uint16_t& value : *field) value = static_cast<uint16_t>(random.Next());
  }
  for (int8_t& e : record.balance) e = static_cast<int8_t>(random.Below(255) - 127);
  return record;
}

std::vector<uint8_t> Reorder(const Shape& shape, kvarn_order from,
                             const std::vector<uint8_t>& record, kvarn_order to) {
  const kvarn_format source = ToFormat(shape, from);
  const kvarn_format target = ToFormat(shape, to);
  std::vector<uint8_t> out(kvarn_record_bytes(&target), 0xA5);
  EXPECT_EQ(kvarn_reorder(&source, record.data(), &target, out.data()), KVARN_OK);
  return out;
}

const std::vector<int> kSomeDims = {32, 40, 56, 64, 72, 80, 96, 112, 128, 184, 192, 256, 320, 576};

TEST(Layout, PortableAndCpuAreTheDocumentsBytes) {
  uint64_t seed = 1;
  for (const Shape& shape : AllShapes(kSomeDims)) {
    const Record record = RandomRecord(shape, seed++);
    const std::vector<uint8_t> portable = ToPortable(record);
    const std::vector<uint8_t> cpu = ToCpu(record);
    ASSERT_EQ(Reorder(shape, KVARN_ORDER_PORTABLE, portable, KVARN_ORDER_CPU), cpu)
        << Describe(shape) << " seed " << seed - 1;
    ASSERT_EQ(Reorder(shape, KVARN_ORDER_CPU, cpu, KVARN_ORDER_PORTABLE), portable)
        << Describe(shape) << " seed " << seed - 1;
  }
}

// Every pair of orders, there and back; and the way does not matter.
TEST(Layout, NoOrderLosesAnything) {
  constexpr kvarn_order kOrders[] = {KVARN_ORDER_PORTABLE, KVARN_ORDER_CPU, KVARN_ORDER_CUDA};
  uint64_t seed = 100000;
  for (const Shape& shape : AllShapes(kSomeDims)) {
    const std::vector<uint8_t> portable = ToPortable(RandomRecord(shape, seed++));
    for (const kvarn_order a : kOrders) {
      const std::vector<uint8_t> in_a = Reorder(shape, KVARN_ORDER_PORTABLE, portable, a);
      for (const kvarn_order b : kOrders) {
        const std::vector<uint8_t> in_b = Reorder(shape, a, in_a, b);
        ASSERT_EQ(in_b, Reorder(shape, KVARN_ORDER_PORTABLE, portable, b))
            << Describe(shape) << " seed " << seed - 1 << " orders " << a << " " << b;
        ASSERT_EQ(Reorder(shape, b, in_b, KVARN_ORDER_PORTABLE), portable)
            << Describe(shape) << " seed " << seed - 1 << " orders " << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace kvarn_test
