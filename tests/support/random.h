// SPDX-License-Identifier: Apache-2.0
//
// Random numbers from integers and exact IEEE operations only: the same on every machine and C
// library, so that a seed names a case.
#ifndef KVARN_TESTS_SUPPORT_RANDOM_H_
#define KVARN_TESTS_SUPPORT_RANDOM_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kvarn_test {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // splitmix64
  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15U;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  // [0, 1)
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // [0, n)
  int Below(int n) { return static_cast<int>(Next() % static_cast<uint64_t>(n)); }
  bool Chance(double probability) { return Uniform() < probability; }
  // Mean 0, variance 1: the sum of twelve uniform numbers, less 6.
  double Normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }
  // Normal over a uniform number: tails like 1/x^2, cut at 30 times.
  double HeavyTailed() { return Normal() / (Uniform() + 1.0 / 30.0); }
  template <typename List>
  auto Pick(const List& list) {
    return list[Next() % static_cast<uint64_t>(list.size())];
  }

 private:
  uint64_t state_;
};

// 2^x with the fraction interpolated linearly.
inline double RoughExp2(double x) {
  const double whole = std::floor(x);
  return std::ldexp(1.0 + (x - whole), static_cast<int>(whole));
}

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_RANDOM_H_
