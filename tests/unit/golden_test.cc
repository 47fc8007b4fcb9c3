// SPDX-License-Identifier: Apache-2.0
//
// Records in version control. A failure here means that stored caches would be misread: change
// KVARN_FORMAT_VERSION and add a folder, do not rewrite the files.
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "kvarn/kvarn.h"
#include "reference/reference_half.h"
#include "support/formats.h"
#include "support/isa.h"

namespace kvarn_test {
namespace {

static_assert(KVARN_FORMAT_VERSION == 1, "add golden/v<new version> and keep testing the old one");

std::vector<uint8_t> ReadGolden(const std::string& name) {
  std::ifstream file(std::string(KVARN_GOLDEN_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<float> ReadRows(const GoldenRows& golden) {
  const std::vector<uint8_t> bytes = ReadGolden(std::string(golden.name) + ".f16");
  std::vector<float> rows;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    rows.push_back(
        kvarn_reference::HalfToFloat(static_cast<uint16_t>(bytes[i] | (bytes[i + 1] << 8))));
  }
  EXPECT_EQ(rows.size(), static_cast<size_t>(golden.n_rows * golden.head_dim));
  return rows;
}

TEST(Golden, EncodersWriteTheStoredBytes) {
  for (const GoldenRows& golden : kGoldenRows) {
    const std::vector<float> rows = ReadRows(golden);
    const std::vector<int> positions = GoldenPositions(golden);
    std::vector<int8_t> balance(static_cast<size_t>(golden.head_dim));
    ASSERT_EQ(kvarn_balance(golden.head_dim, rows.data(), golden.n_rows, nullptr, balance.data()),
              KVARN_OK);
    for (const bool key : {true, false}) {
      for (const int bits : kBits) {
        const std::string name = GoldenRecordName(golden, key, bits);
        const std::vector<uint8_t> want = ReadGolden(name);
        const kvarn_format format =
            ToFormat({key, true, bits, golden.group, golden.head_dim}, KVARN_ORDER_PORTABLE);
        for (const std::string& isa : AvailableIsas()) {
          const ForcedIsa forced(isa);
          std::vector<uint8_t> got(kvarn_record_bytes(&format));
          ASSERT_EQ(kvarn_encode(&format, rows.data(), golden.n_rows,
                                 positions.empty() ? nullptr : positions.data(),
                                 key ? balance.data() : nullptr, got.data(), nullptr),
                    KVARN_OK);
          EXPECT_EQ(got, want) << isa << " " << name;
        }
      }
    }
  }
}

// Records that no encoder writes: a reader has to take them as they are.
TEST(Golden, HandmadeRecordsConvertAndDecode) {
  for (const bool key : {true, false}) {
    for (const int bits : {3, 4}) {
      const std::vector<uint8_t> portable = ReadGolden(HandmadeName(key, bits, "portable"));
      const std::vector<uint8_t> cpu = ReadGolden(HandmadeName(key, bits, "cpu"));
      EXPECT_EQ(portable, ToPortable(HandmadeRecord(key, bits)));
      const kvarn_reference::Shape shape = {key, true, bits, 64, 40};
      const kvarn_format from = ToFormat(shape, KVARN_ORDER_PORTABLE);
      const kvarn_format to = ToFormat(shape, KVARN_ORDER_CPU);
      std::vector<uint8_t> out(cpu.size(), 0xA5);
      ASSERT_EQ(kvarn_reorder(&from, portable.data(), &to, out.data()), KVARN_OK);
      EXPECT_EQ(out, cpu);
      std::vector<uint8_t> back(portable.size(), 0xA5);
      ASSERT_EQ(kvarn_reorder(&to, cpu.data(), &from, back.data()), KVARN_OK);
      EXPECT_EQ(back, portable);
      std::vector<float> rows(64 * 40, NAN);
      ASSERT_EQ(kvarn_decode(&from, portable.data(), rows.data()), KVARN_OK);
      for (const float x : rows) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace kvarn_test
