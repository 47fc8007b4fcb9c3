// SPDX-License-Identifier: Apache-2.0
#include "reference_hadamard.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <map>

namespace kvarn_reference {
namespace {

bool IsPrime(int n) {
  if (n < 2) return false;
  for (int f = 2; f * f <= n; ++f) {
    if (n % f == 0) return false;
  }
  return true;
}

// Legendre symbol by listing the squares.
int Chi(int a, int q) {
  const int residue = ((a % q) + q) % q;
  if (residue == 0) return 0;
  for (int x = 1; x < q; ++x) {
    if (x * x % q == residue) return 1;
  }
  return -1;
}

bool HasPaleyOne(int order) { return IsPrime(order - 1); }
bool HasPaleyTwo(int order) {
  const int q = order / 2 - 1;
  return IsPrime(q) && q % 4 == 1;
}

int PaleyOneEntry(int row, int column, int q) {
  if (row == 0 || row == column) return 1;
  if (column == 0) return -1;
  return Chi(row - column, q);
}

int PaleyTwoEntry(int row, int column, int q) {
  const int i = row / 2;
  const int j = column / 2;
  const int conference = i == j ? 0 : (i == 0 || j == 0 ? 1 : Chi(i - j, q));
  static constexpr int kZero[2][2] = {{1, -1}, {-1, -1}};
  static constexpr int kOne[2][2] = {{1, 1}, {1, -1}};
  return conference == 0 ? kZero[row % 2][column % 2] : conference * kOne[row % 2][column % 2];
}

void FillSmall(Hadamard* h, bool paley_one) {
  for (int row = 0; row < h->order; ++row) {
    for (int column = 0; column < h->order; ++column) {
      h->small.push_back(paley_one ? PaleyOneEntry(row, column, h->order - 1)
                                   : PaleyTwoEntry(row, column, h->order / 2 - 1));
    }
  }
}

// "1/sqrt(D), as fp32": the fp32 nearest to the real number, not two rounded fp32 operations.
float NearestInverseRoot(int n) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
}

Hadamard Build(int head_dim) {
  Hadamard h;
  h.head_dim = head_dim;
  int odd = head_dim;
  while (odd % 2 == 0) odd /= 2;
  h.orthogonal = true;
  h.scale = NearestInverseRoot(head_dim);
  if (odd == 1) {
    h.order = 1;
    h.block = head_dim;
    h.small = {1};
    return h;
  }
  for (int order = 4 * odd; order <= head_dim && head_dim % order == 0; order *= 2) {
    if (!HasPaleyOne(order) && !HasPaleyTwo(order)) continue;
    h.order = order;
    h.block = head_dim / order;
    FillSmall(&h, HasPaleyOne(order));
    return h;
  }
  h.order = odd;
  h.block = head_dim / odd;
  h.orthogonal = false;
  h.scale = NearestInverseRoot(h.block);
  for (int row = 0; row < odd; ++row) {
    for (int column = 0; column < odd; ++column) h.small.push_back(row == column ? 1 : 0);
  }
  return h;
}

}  // namespace

const Hadamard& FindHadamard(int head_dim) {
  static std::map<int, Hadamard> known;
  auto found = known.find(head_dim);
  if (found == known.end()) found = known.emplace(head_dim, Build(head_dim)).first;
  return found->second;
}

const std::vector<double>& DenseHadamard(int head_dim) {
  static std::map<int, std::vector<double>> known;
  std::vector<double>& dense = known[head_dim];
  if (!dense.empty()) return dense;
  const Hadamard& h = FindHadamard(head_dim);
  const double scale = 1.0 / std::sqrt(h.orthogonal ? head_dim : h.block);
  for (int row = 0; row < head_dim; ++row) {
    for (int column = 0; column < head_dim; ++column) {
      const auto common = static_cast<unsigned>((row % h.block) & (column % h.block));
      const int sylvester = std::popcount(common) % 2 == 0 ? 1 : -1;
      dense.push_back(h.Small(row / h.block, column / h.block) * sylvester * scale);
    }
  }
  return dense;
}

void RotateRow(const Hadamard& hadamard, float* row) {
  const int block = hadamard.block;
  for (int start = 0; start < hadamard.head_dim; start += block) {
    for (int distance = 1; distance < block; distance *= 2) {
      for (int j = 0; j < block; ++j) {
        if ((j & distance) != 0) continue;
        const float a = row[start + j];
        const float b = row[start + j + distance];
        row[start + j] = a + b;
        row[start + j + distance] = a - b;
      }
    }
  }
  if (hadamard.order > 1) {
    std::vector<float> y(static_cast<size_t>(hadamard.head_dim), 0.0F);
    for (int j = 0; j < hadamard.order; ++j) {
      float* out = y.data() + static_cast<ptrdiff_t>(j) * block;
      for (int i = 0; i < hadamard.order; ++i) {
        const auto factor = static_cast<float>(hadamard.Small(i, j));
        const float* in = row + static_cast<ptrdiff_t>(i) * block;
        for (int b = 0; b < block; ++b) out[b] = out[b] + factor * in[b];
      }
    }
    for (int d = 0; d < hadamard.head_dim; ++d) row[d] = y[static_cast<size_t>(d)];
  }
  for (int d = 0; d < hadamard.head_dim; ++d) {
    row[d] = row[d] * hadamard.scale + 0.0F;  // no negative zeros
  }
}

}  // namespace kvarn_reference
