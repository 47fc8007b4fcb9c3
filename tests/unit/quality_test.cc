// SPDX-License-Identifier: Apache-2.0
//
// How far decoded tiles are from the input: against the theory of the quantiser, across scales, and
// on the tiles that break other caches.
#include <gtest/gtest.h>

#include <cmath>

#include "kvarn/kvarn.h"
#include "support/formats.h"
#include "support/tiles.h"

namespace kvarn_test {
namespace {

using kvarn_reference::Shape;
using Tile = std::vector<float>;

Tile RoundTrip(const Shape& shape, const Tile& rows, const int8_t* balance) {
  const kvarn_format format = ToFormat(shape, KVARN_ORDER_CPU);
  std::vector<uint8_t> record(kvarn_record_bytes(&format));
  EXPECT_EQ(
      kvarn_encode(&format, rows.data(), shape.group, nullptr, balance, record.data(), nullptr),
      KVARN_OK);
  Tile out(rows.size());
  EXPECT_EQ(kvarn_decode(&format, record.data(), out.data()), KVARN_OK);
  return out;
}

double RelativeError(const Tile& got, const Tile& want) {
  double off = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    off += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(off / norm);
}

// Mean relative error over a few tiles of a kind.
double MeanError(const Shape& shape, TileKind kind) {
  double sum = 0.0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Random random(seed);
    const Tile rows = MakeTile(kind, &random, shape.group, shape.head_dim);
    sum += RelativeError(RoundTrip(shape, rows, nullptr), rows);
  }
  return sum / 4;
}

// A uniform quantiser of N levels made for a Gaussian has a mean square error D of .1188, .03744
// and .01154 for N = 4, 8, 16 (Max 1960). The gain then scales it to E[x x^] = E[x^2], which turns
// D into D / (1 - D). 256 levels spread over the range of a line, about 5.5 deviations for 128
// items and 5 for 64, have an error of range / 255 / sqrt(12) at most.
double GaussianError(int bits) {
  if (bits == 8) return 5.5 / 255 / std::sqrt(12.0);
  const double distortion = bits == 2 ? 0.1188 : (bits == 3 ? 0.03744 : 0.01154);
  return std::sqrt(distortion / (1.0 - distortion));
}

TEST(Quality, GaussianTilesAreNearTheOptimalUniformQuantiser) {
  for (const int bits : kBits) {
    for (const int group : kGroups) {
      for (const bool key : {true, false}) {
        for (const int dim : {64, 128, 192}) {
          const Shape shape = {key, true, bits, group, dim};
          const double ratio = MeanError(shape, TileKind::kGaussian) / GaussianError(bits);
          EXPECT_LT(ratio, 1.1) << Describe(shape);
          EXPECT_GT(ratio, 0.75) << Describe(shape) << ": too good to be true";
        }
      }
    }
  }
}

TEST(Quality, ErrorHalvesWithEveryBit) {
  for (const bool key : {true, false}) {
    for (const TileKind kind :
         {TileKind::kGaussian, TileKind::kChannelSpread, TileKind::kTokenSpread}) {
      std::vector<double> error;
      for (const int bits : kBits) error.push_back(MeanError({key, true, bits, 128, 128}, kind));
      EXPECT_LT(error[1], 0.62 * error[0]) << TileKindName(kind);
      EXPECT_LT(error[2], 0.62 * error[1]) << TileKindName(kind);
      EXPECT_LT(error[3], error[2] / 12) << TileKindName(kind);
    }
  }
}

TEST(Quality, BalancedIsNoWorseThanPublished) {
  for (const bool key : {true, false}) {
    for (const int bits : {2, 3, 4, 8}) {
      for (const TileKind kind : {TileKind::kChannelSpread, TileKind::kTokenSpread}) {
        const double balanced = MeanError({key, true, bits, 128, 128}, kind);
        const double published = MeanError({key, false, bits, 128, 128}, kind);
        EXPECT_LE(balanced, published) << (key ? "K " : "V ") << bits << " " << TileKindName(kind);
      }
    }
  }
}

// Rows of zeros (a row with a NaN is stored so) and of small norm leave the others as good as they
// are without them: the relative error of the whole tile hardly moves.
TEST(Quality, SmallTokensDoNotSpoilTheTile) {
  for (const bool key : {true, false}) {
    for (const int bits : kBits) {
      for (const int small_rows : {1, 4}) {
        for (const float norm : {0.0F, 0.1F, 0.25F}) {
          const Shape shape = {key, true, bits, 64, 64};
          Random random(3);
          Tile rows = MakeTile(TileKind::kGaussian, &random, 64, 64);
          const double without = RelativeError(RoundTrip(shape, rows, nullptr), rows);
          for (size_t i = 0; i < static_cast<size_t>(small_rows) * 64; ++i) rows[i] *= norm;
          const double with = RelativeError(RoundTrip(shape, rows, nullptr), rows);
          EXPECT_LT(with, 1.1 * without)
              << Describe(shape) << ", " << small_rows << " rows of norm " << norm;
        }
      }
    }
  }
}

TEST(Quality, ErrorDoesNotDependOnScale) {
  for (const bool key : {true, false}) {
    for (const int bits : kBits) {
      const Shape shape = {key, true, bits, 128, 128};
      Random random(7);
      const Tile rows = MakeTile(TileKind::kChannelSpread, &random, 128, 128);
      const double at_one = RelativeError(RoundTrip(shape, rows, nullptr), rows);
      for (int exponent = -12; exponent <= 10; ++exponent) {
        for (const double part : {1.0, 1.37}) {
          Tile scaled = rows;
          for (float& x : scaled) x = static_cast<float>(x * std::ldexp(part, exponent));
          const double error = RelativeError(RoundTrip(shape, scaled, nullptr), scaled);
          EXPECT_NEAR(error / at_one, 1.0, 0.01) << Describe(shape) << " 2^" << exponent;
        }
      }
    }
  }
}

// N(0, 1) plus a vector of this norm in one RoPE pair, that turns by `angle` a token: 0 is a
// constant bias, as in the first layers of some models before RoPE, 1 the fastest pair after it.
Tile BiasedKeys(Random* random, double norm, double angle) {
  Tile rows;
  for (int g = 0; g < 128; ++g) {
    for (int d = 0; d < 128; ++d) {
      double x = random->Normal();
      if (d == 5) x += norm * std::cos(0.3 + angle * g);
      if (d == 69) x += norm * std::sin(0.3 + angle * g);
      rows.push_back(static_cast<float>(x));
    }
  }
  return rows;
}

// Mean over channels of the standard deviation over tokens.
double MeanDeviation(const Tile& rows) {
  double sum = 0.0;
  for (size_t d = 0; d < 128; ++d) {
    double mean = 0.0;
    double square = 0.0;
    for (size_t g = 0; g < 128; ++g) {
      const double x = rows[g * 128 + d];
      mean += x / 128;
      square += x * x / 128;
    }
    sum += std::sqrt(square - mean * mean) / 128;
  }
  return sum;
}

// RMS over queries ~ N(0, 1) and tokens of the logit error q.(k^ - k) / sqrt(D), less its mean over
// tokens: a constant leaves the softmax unchanged.
double LogitError(const Tile& got, const Tile& want, Random* random) {
  double sum = 0.0;
  constexpr int kQueries = 32;
  for (int i = 0; i < kQueries; ++i) {
    std::vector<double> off(128, 0.0);
    std::vector<double> query(128);
    for (double& q : query) q = random->Normal();
    double mean = 0.0;
    for (size_t g = 0; g < 128; ++g) {
      for (size_t d = 0; d < 128; ++d) {
        off[g] += query[d] *
                  (static_cast<double>(got[g * 128 + d]) - static_cast<double>(want[g * 128 + d]));
      }
      off[g] /= std::sqrt(128.0);
      mean += off[g] / 128;
    }
    for (const double x : off) sum += (x - mean) * (x - mean);
  }
  return std::sqrt(sum / (kQueries * 128));
}

// A constant bias goes into z, whose fp16 rounding is the same in every token too. For the rest,
// the rotation spreads a quantiser error of relative size GaussianError over all channels of (k s):
// that of channel d in a logit is err * rms(k s) / s[d], and s = deviation^(-1/2) makes the sum
// over channels, in nats, err * mean deviation (for queries ~ N(0, 1)).
TEST(Quality, KeyBiasDoesNotCollapse) {
  for (const int bits : {2, 3, 4}) {
    for (const double angle : {0.0, 0.05, 1.0}) {
      for (const double norm : {20.0, 100.0, 600.0}) {
        Random random(static_cast<uint64_t>(norm) + static_cast<uint64_t>(bits));
        const Tile rows = BiasedKeys(&random, norm, angle);
        std::vector<int8_t> balance(128);
        ASSERT_EQ(kvarn_balance(128, rows.data(), 128, nullptr, balance.data()), KVARN_OK);
        const Tile balanced = RoundTrip({true, true, bits, 128, 128}, rows, balance.data());
        const Tile published = RoundTrip({true, false, bits, 128, 128}, rows, nullptr);
        const double nats = LogitError(balanced, rows, &random);
        const double nats_published = LogitError(published, rows, &random);
        SCOPED_TRACE(testing::Message() << bits << " bits, bias " << norm << ", angle " << angle
                                        << ": " << nats << " nats, published " << nats_published);
        EXPECT_LT(nats, 1.1 * GaussianError(bits) * MeanDeviation(rows));
        EXPECT_LT(nats, nats_published);
        if (norm >= 100.0 && angle > 0.0) {
          EXPECT_LT(nats, 0.5 * nats_published);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvarn_test
