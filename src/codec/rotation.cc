// SPDX-License-Identifier: Apache-2.0
//
// Hadamard matrices of order 4k by the two Paley constructions (R. E. A. C. Paley, "On orthogonal
// matrices", 1933) over prime fields; powers of two are left to the butterfly in the kernels.
#include "codec/rotation.h"

#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "format/record_layout.h"

namespace kvarn {
namespace {

bool IsPrime(int n) {
  if (n < 2) return false;
  for (int divisor = 2; divisor * divisor <= n; ++divisor) {
    if (n % divisor == 0) return false;
  }
  return true;
}

size_t At(int row, int col, int order) {
  return static_cast<size_t>(row) * static_cast<size_t>(order) + static_cast<size_t>(col);
}

// Legendre symbols chi(0..q-1) modulo the odd prime q.
std::vector<int> QuadraticCharacter(int q) {
  std::vector<int> chi(static_cast<size_t>(q), -1);
  chi[0] = 0;
  for (int x = 1; x < q; ++x) chi[static_cast<size_t>(x * x % q)] = 1;
  return chi;
}

// Paley I, order q + 1, q = 3 mod 4: I + S, S bordered by a row of +1 and a column of -1.
std::vector<int8_t> PaleyOne(int order) {
  const int q = order - 1;
  const std::vector<int> chi = QuadraticCharacter(q);
  std::vector<int8_t> matrix(static_cast<size_t>(order) * static_cast<size_t>(order));
  for (int row = 0; row < order; ++row) {
    for (int col = 0; col < order; ++col) {
      int value = 0;
      if (row == col || row == 0) {
        value = 1;
      } else if (col == 0) {
        value = -1;
      } else {
        value = chi[static_cast<size_t>((row - col + q) % q)];
      }
      matrix[At(row, col, order)] = static_cast<int8_t>(value);
    }
  }
  return matrix;
}

// Paley II, order 2(q + 1), q = 1 mod 4: the symmetric conference matrix with 0 replaced by
// [1 -1; -1 -1] and +-1 by +-[1 1; 1 -1].
std::vector<int8_t> PaleyTwo(int order) {
  const int half = order / 2;
  const int q = half - 1;
  const std::vector<int> chi = QuadraticCharacter(q);
  std::vector<int8_t> matrix(static_cast<size_t>(order) * static_cast<size_t>(order));
  for (int row = 0; row < half; ++row) {
    for (int col = 0; col < half; ++col) {
      int conference = 1;
      if (row == col) {
        conference = 0;
      } else if (row != 0 && col != 0) {
        conference = chi[static_cast<size_t>((row - col + q) % q)];
      }
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          int value = 0;
          if (conference == 0) {
            value = (i == 0 && j == 0) ? 1 : -1;
          } else {
            value = (i == 1 && j == 1) ? -conference : conference;
          }
          matrix[At(2 * row + i, 2 * col + j, order)] = static_cast<int8_t>(value);
        }
      }
    }
  }
  return matrix;
}

// A Hadamard matrix of this order, or empty where neither construction gives one.
std::vector<int8_t> SmallHadamard(int order) {
  if (IsPrime(order - 1)) return PaleyOne(order);  // order = 0 mod 4, so q = 3 mod 4
  const int q = order / 2 - 1;
  if (q % 4 == 1 && IsPrime(q)) return PaleyTwo(order);
  return {};
}

struct Entry {
  std::once_flag once;
  std::vector<int8_t> small;
  std::unique_ptr<Rotation> rotation;
};

void Build(int head_dim, Entry* entry) {
  int block = head_dim & -head_dim;  // largest power of two that divides head_dim
  const int odd = head_dim / block;
  auto rotation = std::make_unique<Rotation>();
  rotation->head_dim = head_dim;
  rotation->scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  if (odd == 1) {
    rotation->block = head_dim;
    entry->rotation = std::move(rotation);
    return;
  }
  // The smallest multiple of 4 odd that has a construction: 12, 20, 28, 36, 44, 60, 68 ...
  for (int order = 4 * odd; head_dim % order == 0; order *= 2) {
    entry->small = SmallHadamard(order);
    if (!entry->small.empty()) {
      rotation->small_dim = order;
      rotation->block = head_dim / order;
      rotation->small = entry->small.data();
      entry->rotation = std::move(rotation);
      return;
    }
  }
  entry->small.assign(static_cast<size_t>(odd) * static_cast<size_t>(odd), 0);
  for (int i = 0; i < odd; ++i) entry->small[At(i, i, odd)] = 1;
  rotation->small_dim = odd;
  rotation->block = block;
  rotation->small = entry->small.data();
  rotation->scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)));
  entry->rotation = std::move(rotation);
}

}  // namespace

const Rotation* FindRotation(int head_dim) {
  if (head_dim < kMinHeadDim || head_dim > kMaxHeadDim || head_dim % 8 != 0) return nullptr;
  static std::array<Entry, kMaxHeadDim / 8 + 1> entries;
  Entry& entry = entries[static_cast<size_t>(head_dim / 8)];
  try {
    std::call_once(entry.once, [&] { Build(head_dim, &entry); });
  } catch (...) {  // std::bad_alloc; call_once tries again next time
    return nullptr;
  }
  return entry.rotation.get();
}

}  // namespace kvarn
