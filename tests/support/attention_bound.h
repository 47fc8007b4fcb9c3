// SPDX-License-Identifier: Apache-2.0
//
// How far the library's attention may be from exact arithmetic on the same records. Derived from
// what it computes; nothing in it is tuned.
//
// Sealed K: the weights Q'[d] = q^[d] a[d] are 15-bit integers times max|Q'| / 16256, so each is
// off by half a step and a score by t[g] * step/2 * sum_d |c - Q/2| (|c| in the published form,
// whose zero is not folded into the integers). Sealed V: likewise with p[g] a[g], so channel d of
// the rotated output is off by C[d] * step/2 * sum_g c; its norm survives the rotation back. The
// rest is fp32 rounding, 2^-24 times the magnitudes that are added. An error of at most e[g] in
// each logit moves the probabilities by p[g] (exp(e[g] + L) - 1), L = log sum p exp(e).
#ifndef KVARN_TESTS_SUPPORT_ATTENTION_BOUND_H_
#define KVARN_TESTS_SUPPORT_ATTENTION_BOUND_H_

#include <map>
#include <vector>

#include "support/attention_setup.h"

namespace kvarn_test {

class AttentionBound {
 public:
  explicit AttentionBound(const AttentionSetup& setup);

  // Largest 2-norm of the error of one output row; `row` is the oracle's.
  double OfRow(int stream, int token, int head, const kvarn_reference::AttentionRow& row);

 private:
  struct KeyTile {
    bool sealed = false;
    std::vector<double> scale, zero, token;  // a, z, t
    std::vector<int8_t> balance;
    std::vector<double> codes;      // sum over channels of |c - Q/2|, for each token
    std::vector<double> magnitude;  // 2-norm of |c - Q/2| a t + |z|
  };
  struct ValueTile {
    bool sealed = false;
    std::vector<double> scale, zero;  // a, z
    double codes = 0.0;               // 2-norm over channels of C sum_g c
    double channels = 0.0;            // 2-norm of C
  };
  struct Pair {
    std::vector<KeyTile> keys;
    std::vector<ValueTile> values;
    std::vector<double> value_norm;  // of each row
  };

  void AddKeyTile(const kvarn_plane* plane, const uint8_t* memory, int tile, Pair* pair) const;
  void AddValueTile(const kvarn_plane* plane, const uint8_t* memory, int tile, Pair* pair) const;
  // Error of each logit of a row.
  std::vector<double> LogitErrors(const Pair& pair, int stream, int token, int head,
                                  const kvarn_reference::AttentionRow& row) const;

  const AttentionSetup& setup_;
  const kvarn_reference::AttentionProblem& problem_;
  int group_;
  int key_q_;
  int value_q_;
  bool balanced_;
  std::vector<Pair> pairs_;
};

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_ATTENTION_BOUND_H_
