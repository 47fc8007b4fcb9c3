// SPDX-License-Identifier: Apache-2.0
//
// Zero, constant, non-finite, huge and tiny input (docs/format.md sections 1 and 8).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kvarn/kvarn.h"
#include "reference/reference_hadamard.h"
#include "support/formats.h"
#include "support/isa.h"
#include "support/tiles.h"

namespace kvarn_test {
namespace {

using kvarn_reference::Shape;
using Tile = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Encoded {
  Bytes record;
  Tile rows;
  kvarn_counts counts = {};
};

Encoded Encode(const Shape& shape, const Tile& rows) {
  const kvarn_format format = ToFormat(shape, KVARN_ORDER_CPU);
  Encoded result;
  result.record.resize(kvarn_record_bytes(&format));
  result.rows.resize(static_cast<size_t>(shape.group * shape.head_dim));
  const auto n = static_cast<int32_t>(rows.size() / static_cast<size_t>(shape.head_dim));
  EXPECT_EQ(
      kvarn_encode(&format, rows.data(), n, nullptr, nullptr, result.record.data(), &result.counts),
      KVARN_OK);
  EXPECT_EQ(kvarn_decode(&format, result.record.data(), result.rows.data()), KVARN_OK);
  return result;
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const bool key : {true, false}) {
    for (const bool balanced : {true, false}) {
      for (const int bits : kBits) {
        for (const int dim : {64, 80}) {
          shapes.push_back({key, balanced, bits, dim == 64 ? 128 : 64, dim});
        }
      }
    }
  }
  return shapes;
}

void ExpectFinite(const Encoded& result) {
  for (const float x : result.rows) ASSERT_TRUE(std::isfinite(x));
}

Tile Gaussian(const Shape& shape, uint64_t seed) {
  Random random(seed);
  return MakeTile(TileKind::kGaussian, &random, shape.group, shape.head_dim);
}

TEST(Degenerate, ZeroTileIsExact) {
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(Describe(shape));
    const Encoded result = Encode(shape, Tile(static_cast<size_t>(shape.group * shape.head_dim)));
    for (const float x : result.rows) ASSERT_EQ(x, 0.0F);
    EXPECT_EQ(result.counts.values_saturated, 0U);
  }
}

// One zero token or channel, one constant channel, and a first fix that adds a tiny constant.
TEST(Degenerate, ZeroAndConstantLines) {
  for (const Shape& shape : Shapes()) {
    for (int what = 0; what < 4; ++what) {
      SCOPED_TRACE(Describe(shape) + " case " + std::to_string(what));
      Tile rows = Gaussian(shape, 11);
      for (int g = 0; g < shape.group; ++g) {
        for (int d = 0; d < shape.head_dim; ++d) {
          float& x = rows[static_cast<size_t>(g * shape.head_dim + d)];
          if (what == 0 && g == 5) x = 0.0F;
          if (what == 1 && d == 7) x = 0.0F;
          if (what == 2 && d == 7) x = 3.0F;
          if (what == 3) x = 1e-8F;
        }
      }
      ExpectFinite(Encode(shape, rows));
    }
  }
}

// All rows equal: K decodes to the fp16 of its rotated row, so within 2^-11 of its norm a channel,
// whatever the bits. V keeps a row's own a and z: the error is that of its codes.
TEST(Degenerate, EqualRowsAreKeptByKeys) {
  for (const Shape& shape : Shapes()) {
    if (!shape.key || !shape.balanced) continue;
    Tile row = Gaussian(shape, 12);
    row.resize(static_cast<size_t>(shape.head_dim));
    Tile rows;
    double norm = 0.0;
    for (const float x : row) norm += static_cast<double>(x) * x;
    for (int g = 0; g < shape.group; ++g) rows.insert(rows.end(), row.begin(), row.end());
    const Encoded result = Encode(shape, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_NEAR(result.rows[i], rows[i], 0x1p-11 * std::sqrt(norm)) << Describe(shape);
    }
  }
}

// One rotated channel carries everything (head dim 64), or a few (80).
TEST(Degenerate, ConstantTiles) {
  for (const Shape& shape : Shapes()) {
    for (const float value : {1.0F, -1.0F, 1e-4F, 1e-7F, 300.0F}) {
      const Encoded result =
          Encode(shape, Tile(static_cast<size_t>(shape.group * shape.head_dim), value));
      ExpectFinite(result);
      if (!shape.balanced) continue;
      for (const float x : result.rows) {
        // The last term is the step of fp16 subnormals, which z has in tiny tiles.
        ASSERT_NEAR(x, value, std::fabs(value) * 0.02 + 1e-7) << Describe(shape) << " " << value;
      }
    }
  }
}

// A row with a NaN or Inf is as good as a zero row, for every other row and for its own bytes.
TEST(Degenerate, NonFiniteRowsAreZeroedAndReachNoOther) {
  for (const Shape& shape : Shapes()) {
    const Tile clean = Gaussian(shape, 13);
    for (const int token : {0, shape.group / 2 - 1, shape.group - 1}) {
      for (const int channel : {0, shape.head_dim - 1}) {
        for (const float poison : {kNan, kInfinity, -kInfinity}) {
          Tile bad = clean;
          Tile zeroed = clean;
          bad[static_cast<size_t>(token * shape.head_dim + channel)] = poison;
          for (int d = 0; d < shape.head_dim; ++d) {
            zeroed[static_cast<size_t>(token * shape.head_dim + d)] = 0.0F;
          }
          const Encoded got = Encode(shape, bad);
          const Encoded want = Encode(shape, zeroed);
          ASSERT_EQ(got.record, want.record) << Describe(shape) << " token " << token;
          ASSERT_EQ(got.counts.rows_zeroed, 1U);
          ASSERT_EQ(want.counts.rows_zeroed, 0U);
          ExpectFinite(got);
        }
      }
    }
  }
}

TEST(Degenerate, ATileOfNansIsAZeroTile) {
  for (const Shape& shape : Shapes()) {
    const auto size = static_cast<size_t>(shape.group * shape.head_dim);
    const Encoded got = Encode(shape, Tile(size, kNan));
    EXPECT_EQ(got.record, Encode(shape, Tile(size)).record) << Describe(shape);
    EXPECT_EQ(got.counts.rows_zeroed, static_cast<uint64_t>(shape.group));
  }
}

// bf16 holds 3e38. The rotation is done in fp32, on values clamped to the fp16 range.
TEST(Degenerate, HugeValuesSaturateAndAreCounted) {
  for (const Shape& shape : Shapes()) {
    for (const float huge : {7e4F, 1e5F, 3e38F, -3e38F}) {
      SCOPED_TRACE(Describe(shape) + " " + std::to_string(huge));
      Tile one = Gaussian(shape, 14);
      one[static_cast<size_t>(3 * shape.head_dim + 5)] = huge;
      const Encoded single = Encode(shape, one);
      ExpectFinite(single);
      EXPECT_GE(single.counts.values_saturated, 1U);
      const auto size = static_cast<size_t>(shape.group * shape.head_dim);
      const Encoded all = Encode(shape, Tile(size, huge));
      ExpectFinite(all);
      EXPECT_GE(all.counts.values_saturated, size);
    }
  }
}

// The largest values that need no clamp, same sign: a rotation in fp16 would overflow.
TEST(Degenerate, LargestFiniteRowsStayFinite) {
  for (const Shape& shape : Shapes()) {
    for (const float value : {4095.0F, 8190.0F, 65504.0F}) {
      Tile rows = Gaussian(shape, 15);
      for (float& x : rows) x = value + 0.01F * value * std::tanh(x) - 0.01F * value;
      ExpectFinite(Encode(shape, rows));
    }
  }
}

// Nothing is kept from an earlier tile: bytes do not depend on what was encoded before.
TEST(Degenerate, NoStateBetweenCalls) {
  for (const Shape& shape : Shapes()) {
    const Tile rows = Gaussian(shape, 16);
    const Bytes fresh = Encode(shape, rows).record;
    Encode(shape, Tile(rows.size(), 1e4F));
    Encode({shape.key, shape.balanced, 8, 128, 576}, Gaussian({true, true, 8, 128, 576}, 17));
    EXPECT_EQ(Encode(shape, rows).record, fresh) << Describe(shape);
  }
}

TEST(Degenerate, FewRows) {
  for (const Shape& shape : Shapes()) {
    for (const int n : {1, 2, 3}) {
      Tile rows = Gaussian(shape, 18);
      rows.resize(static_cast<size_t>(n * shape.head_dim));
      const Encoded result = Encode(shape, rows);
      ExpectFinite(result);
      if (!shape.key || !shape.balanced || n != 1) continue;
      double norm = 0.0;
      for (const float x : rows) norm += static_cast<double>(x) * x;
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_NEAR(result.rows[i], rows[i], 0x1p-11 * std::sqrt(norm)) << "one row: through z";
      }
    }
  }
}

TEST(Balance, Extremes) {
  constexpr size_t kDim = 64;
  std::vector<int8_t> e(kDim, 99);
  const auto run = [&](const Tile& keys, const Tile* query) {
    e.assign(kDim, 99);
    EXPECT_EQ(kvarn_balance(kDim, keys.data(), static_cast<int32_t>(keys.size() / kDim),
                            query == nullptr ? nullptr : query->data(), e.data()),
              KVARN_OK);
  };
  run(Tile(kDim * 8), nullptr);
  EXPECT_EQ(e, std::vector<int8_t>(kDim, 0)) << "zero tile";
  run(Tile(kDim * 8, 65504.0F), nullptr);
  EXPECT_EQ(e, std::vector<int8_t>(kDim, 0)) << "constant tile";
  Random random(19);
  const Tile keys = MakeTile(TileKind::kGaussian, &random, 8, kDim);
  run(Tile(keys.begin(), keys.begin() + kDim), nullptr);
  EXPECT_EQ(e, std::vector<int8_t>(kDim, 0)) << "one row has no variance";

  // One channel 2^12 times the others: 24 octaves of variance, held to 10 by the floor of a
  // thousandth of the mean, which is 1/64 of the large one: 16 octaves; a quarter of them in e.
  Tile outlier = keys;
  for (size_t g = 0; g < 8; ++g) outlier[g * kDim + 9] *= 4096.0F;
  run(outlier, nullptr);
  for (size_t d = 0; d < kDim; ++d) {
    if (d != 9) {
      EXPECT_NEAR((e[d] - e[9]) / 8.0, std::log2(1000.0 * kDim) / 4, 0.3);
    }
  }
  Tile query(kDim, 1.0F);
  run(keys, nullptr);
  const std::vector<int8_t> without = e;
  run(keys, &query);
  EXPECT_EQ(e, without) << "null means ones";
  for (const float value : {0.0F, 1e-30F, 3e37F}) {
    query.assign(kDim, value);
    run(keys, &query);
    for (size_t d = 0; d < kDim; ++d) EXPECT_NEAR(e[d], without[d], 1) << value;
  }
}

// Any e is legal for the encoder, and decoding stays finite.
TEST(Balance, ExtremeExponentsEncode) {
  for (const int bits : kBits) {
    const Shape shape = {true, true, bits, 64, 64};
    const Tile rows = Gaussian(shape, 20);
    for (const int reach : {127, 128}) {
      std::vector<int8_t> e;
      for (int d = 0; d < 64; ++d) e.push_back(static_cast<int8_t>(d % 2 == 0 ? -reach : 127));
      const kvarn_format format = ToFormat(shape, KVARN_ORDER_PORTABLE);
      Bytes record(kvarn_record_bytes(&format));
      Tile out(rows.size());
      kvarn_counts counts = {};
      ASSERT_EQ(kvarn_encode(&format, rows.data(), 64, nullptr, e.data(), record.data(), &counts),
                KVARN_OK);
      ASSERT_EQ(kvarn_decode(&format, record.data(), out.data()), KVARN_OK);
      for (const float x : out) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace kvarn_test
