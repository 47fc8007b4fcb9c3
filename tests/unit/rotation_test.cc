// SPDX-License-Identifier: Apache-2.0
//
// The rotation is orthonormal for every legal head dim, and production applies that very matrix.
#include "codec/rotation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cpu/kernels.h"
#include "reference/reference_hadamard.h"
#include "support/formats.h"
#include "support/isa.h"
#include "support/random.h"

namespace kvarn_test {
namespace {

using kvarn_reference::DenseHadamard;
using kvarn_reference::FindHadamard;

// max |H H^T - I| of a square matrix.
double Deviation(const std::vector<double>& h, size_t n) {
  double worst = 0.0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double part[4] = {};
      for (size_t k = 0; k < n; ++k) part[k % 4] += h[i * n + k] * h[j * n + k];
      const double dot = (part[0] + part[1]) + (part[2] + part[3]);
      worst = std::max(worst, std::fabs(dot - (i == j ? 1.0 : 0.0)));
    }
  }
  return worst;
}

TEST(Rotation, IsOrthonormalForEveryLegalHeadDim) {
  for (const int dim : LegalHeadDims()) {
    EXPECT_LT(Deviation(DenseHadamard(dim), static_cast<size_t>(dim)), 1e-6) << "head dim " << dim;
  }
}

// The tempting wrong fix of other projects: the corner of the next power of two.
TEST(Rotation, TheCheckCatchesATruncatedMatrix) {
  const std::vector<double>& h128 = DenseHadamard(128);
  std::vector<double> corner;
  for (size_t i = 0; i < 80; ++i) {
    for (size_t j = 0; j < 80; ++j) corner.push_back(h128[i * 128 + j]);
  }
  EXPECT_GT(Deviation(corner, 80), 0.3);
}

TEST(Rotation, OnlySevenHeadDimsFallBackToBlocks) {
  std::vector<int> blocks;
  for (const int dim : LegalHeadDims()) {
    if (!FindHadamard(dim).orthogonal) blocks.push_back(dim);
  }
  EXPECT_EQ(blocks, (std::vector<int>{184, 232, 344, 376, 472, 520, 536}));
}

TEST(Rotation, IllegalHeadDimsHaveNone) {
  for (const int dim : {-8, 0, 8, 24, 33, 36, 100, 577, 584, 1024}) {
    EXPECT_EQ(kvarn::FindRotation(dim), nullptr) << dim;
  }
}

struct Rotated {
  std::vector<float> forward;
  std::vector<float> back;
};

Rotated RunKernel(const std::string& isa, int dim, const std::vector<float>& rows, int n) {
  bool known = false;
  const kvarn::Kernels* kernels = kvarn::FindKernels(isa.c_str(), &known);
  const kvarn::Rotation& rotation = *kvarn::FindRotation(dim);
  Rotated result;
  result.forward = rows;
  const int stride = kvarn::RowStride(dim);
  kernels->rotate(rotation, result.forward.data(), n, stride, false);
  result.back = result.forward;
  kernels->rotate(rotation, result.back.data(), n, stride, true);
  return result;
}

// Each of log2(B) butterfly steps, `order` sums and the scale rounds once at a relative 2^-24 and
// keeps the norm of a row, so the error of a row is below (log2 B + order + 2) 2^-24 |x|. The way
// back adds the same again.
TEST(Rotation, EveryLevelAppliesTheReferenceMatrix) {
  constexpr int kRows = 3;
  for (const int dim : LegalHeadDims()) {
    Random random(static_cast<uint64_t>(dim));
    const auto stride = static_cast<size_t>(kvarn::RowStride(dim));
    const auto width = static_cast<size_t>(dim);
    std::vector<float> rows(stride * kRows, 0.0F);
    for (size_t g = 0; g < kRows; ++g) {
      for (size_t d = 0; d < width; ++d) {
        rows[g * stride + d] = static_cast<float>(random.HeavyTailed());
      }
    }
    const kvarn_reference::Hadamard& h = FindHadamard(dim);
    const std::vector<double>& dense = DenseHadamard(dim);
    const double rounding = (std::log2(h.block) + h.order + 2) * 0x1p-24;
    std::vector<float> first;
    for (const std::string& isa : AvailableIsas()) {
      SCOPED_TRACE(isa + ", head dim " + std::to_string(dim));
      const Rotated result = RunKernel(isa, dim, rows, kRows);
      if (first.empty()) first = result.forward;
      EXPECT_EQ(first, result.forward) << "levels differ";
      for (size_t g = 0; g < kRows; ++g) {
        double norm = 0.0, off = 0.0, off_back = 0.0;
        std::vector<float> exact(rows.begin() + static_cast<ptrdiff_t>(g * stride),
                                 rows.begin() + static_cast<ptrdiff_t>(g * stride + width));
        for (size_t d = 0; d < width; ++d) {
          double want = 0.0;
          for (size_t j = 0; j < width; ++j) want += exact[j] * dense[j * width + d];
          norm += exact[d] * exact[d];
          off += std::pow(result.forward[g * stride + d] - want, 2);
          off_back += std::pow(result.back[g * stride + d] - exact[d], 2);
        }
        EXPECT_LE(std::sqrt(off), rounding * std::sqrt(norm));
        EXPECT_LE(std::sqrt(off_back), 2 * rounding * std::sqrt(norm));
        kvarn_reference::RotateRow(h, exact.data());
        for (size_t d = 0; d < width; ++d) EXPECT_EQ(result.forward[g * stride + d], exact[d]);
        for (size_t d = width; d < stride; ++d) EXPECT_EQ(result.forward[g * stride + d], 0.0F);
      }
    }
  }
}

}  // namespace
}  // namespace kvarn_test
