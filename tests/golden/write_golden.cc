// SPDX-License-Identifier: Apache-2.0
//
// Writes the golden set into a folder, from the reference alone. Run once for each format version:
//   cmake --build --preset release --target kvarn_write_golden
//   build/release/tests/kvarn_write_golden tests/golden/v1
#include <cstdio>
#include <fstream>

#include "reference/reference_balance.h"
#include "reference/reference_encoder.h"
#include "reference/reference_half.h"
#include "support/formats.h"
#include "support/golden.h"

namespace {

void WriteBytes(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file) std::fprintf(stderr, "cannot write %s\n", path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kvarn_write_golden FOLDER\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  for (const kvarn_test::GoldenRows& golden : kvarn_test::kGoldenRows) {
    kvarn_test::Random random(golden.seed);
    kvarn_reference::EncoderInput input;
    input.n_rows = golden.n_rows;
    input.position = kvarn_test::GoldenPositions(golden);
    std::vector<uint8_t> halves;
    for (const float x : MakeTile(golden.kind, &random, golden.n_rows, golden.head_dim)) {
      const uint16_t half = kvarn_reference::HalfFromFloat(x, nullptr);
      halves.push_back(static_cast<uint8_t>(half & 0xFF));
      halves.push_back(static_cast<uint8_t>(half >> 8));
      input.rows.push_back(kvarn_reference::HalfToFloat(half));
    }
    WriteBytes(folder + golden.name + ".f16", halves);
    for (const bool key : {true, false}) {
      for (const int bits : kvarn_test::kBits) {
        input.shape = {key, true, bits, golden.group, golden.head_dim};
        input.balance.clear();
        if (key) {
          input.balance =
              kvarn_reference::Balance(golden.head_dim, input.rows.data(), golden.n_rows, nullptr);
        }
        kvarn_reference::Counts counts;
        WriteBytes(folder + GoldenRecordName(golden, key, bits),
                   ToPortable(Encode(input, &counts)));
      }
    }
  }
  for (const bool key : {true, false}) {
    for (const int bits : {3, 4}) {
      const kvarn_reference::Record record = kvarn_test::HandmadeRecord(key, bits);
      WriteBytes(folder + kvarn_test::HandmadeName(key, bits, "portable"), ToPortable(record));
      WriteBytes(folder + kvarn_test::HandmadeName(key, bits, "cpu"), ToCpu(record));
    }
  }
  return 0;
}
