// SPDX-License-Identifier: Apache-2.0
//
// The golden set: files under golden/v<format version>/ that were written once from the reference
// and must never change while the version stays.
#ifndef KVARN_TESTS_SUPPORT_GOLDEN_H_
#define KVARN_TESTS_SUPPORT_GOLDEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/reference_encoder.h"
#include "support/tiles.h"

namespace kvarn_test {

// Rows of a golden tile: <name>.f16, fp16 [n_rows][head_dim].
struct GoldenRows {
  const char* name;
  TileKind kind;
  int head_dim;
  int n_rows;
  int group;
  bool spread;  // rows lie at every second position, from 1
  uint64_t seed;
};

inline constexpr GoldenRows kGoldenRows[] = {
    {"d32", TileKind::kGaussian, 32, 64, 64, false, 1},
    {"d80_bias", TileKind::kChannelBias, 80, 64, 64, false, 2},
    {"d64_partial", TileKind::kTokenSpread, 64, 50, 128, true, 3},
};

inline std::vector<int> GoldenPositions(const GoldenRows& rows) {
  std::vector<int> at;
  for (int i = 0; rows.spread && i < rows.n_rows; ++i) at.push_back(2 * i + 1);
  return at;
}

// <role><bits>_<rows>.portable
inline std::string GoldenRecordName(const GoldenRows& rows, bool key, int bits) {
  std::string name(1, key ? 'k' : 'v');
  return name.append(std::to_string(bits)).append("_").append(rows.name).append(".portable");
}

// A record that the encoder never writes: extreme scales, all codes in use, extreme balance.
inline kvarn_reference::Record HandmadeRecord(bool key, int bits) {
  kvarn_reference::Record record({key, true, bits, 64, 40});
  for (size_t i = 0; i < record.codes.size(); ++i) {
    record.codes[i] = static_cast<uint8_t>(i * 7 % (size_t{1} << bits));
  }
  static constexpr uint16_t kExtremes[] = {0x0000, 0x0001, 0x3C00, 0x7BFF, 0x8000, 0xFBFF, 0x83FF};
  size_t next = 0;
  for (auto* field : {&record.scale, &record.zero, &record.other}) {
    for (uint16_t& value : *field) value = kExtremes[next++ % 7];
  }
  for (size_t d = 0; d < record.balance.size(); ++d) {
    record.balance[d] = static_cast<int8_t>(d % 3 == 0 ? -128 : (d % 3 == 1 ? 127 : 0));
  }
  return record;
}

inline std::string HandmadeName(bool key, int bits, const char* order) {
  std::string name("handmade_");
  name += key ? 'k' : 'v';
  return name.append(std::to_string(bits)).append(".").append(order);
}

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_GOLDEN_H_
