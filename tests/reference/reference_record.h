// SPDX-License-Identifier: Apache-2.0
//
// A record taken apart into its fields, and both byte orders of docs/format.md section 3.
#ifndef KVARN_TESTS_REFERENCE_REFERENCE_RECORD_H_
#define KVARN_TESTS_REFERENCE_REFERENCE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvarn_reference {

struct Shape {
  bool key = true;
  bool balanced = true;  // false: the published format
  int bits = 4;
  int group = 128;
  int head_dim = 128;

  bool HasBalance() const { return key && balanced; }
  int Q() const { return (1 << bits) - 1; }
};

struct Record {
  Shape shape;
  std::vector<uint8_t> codes;   // K [D][G], V [G][D], one a byte
  std::vector<uint16_t> scale;  // a: K [D], V [G]
  std::vector<uint16_t> zero;   // z: K [D], V [G]
  std::vector<uint16_t> other;  // K t [G], V C [D]
  std::vector<int8_t> balance;  // e [D], balanced K only

  // All fields zero.
  explicit Record(const Shape& of);

  uint8_t& CodeAt(int channel, int token);
  uint8_t CodeAt(int channel, int token) const;
};

std::vector<uint8_t> ToPortable(const Record& record);
std::vector<uint8_t> ToCpu(const Record& record);
Record FromPortable(const Shape& shape, const uint8_t* bytes);
Record FromCpu(const Shape& shape, const uint8_t* bytes);

}  // namespace kvarn_reference
#endif  // KVARN_TESTS_REFERENCE_REFERENCE_RECORD_H_
