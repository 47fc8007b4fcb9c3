// SPDX-License-Identifier: Apache-2.0
//
// Softmax attention over plain rows in double precision: no tiles, no running maximum.
#ifndef KVARN_TESTS_REFERENCE_REFERENCE_ATTENTION_H_
#define KVARN_TESTS_REFERENCE_REFERENCE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvarn_reference {

struct AttentionProblem {
  int n_streams = 1;
  int n_tokens = 1;
  int n_heads = 1;
  int n_kv_heads = 1;
  int n_rows = 0;
  int key_dim = 0;
  int value_dim = 0;
  // Index stream * n_kv_heads + kv_head: [n_rows][dim].
  std::vector<std::vector<double>> keys;
  std::vector<std::vector<double>> values;
  std::vector<float> query;  // [S][T][n_heads][Dk]
  // fp16 [mask_streams][mask_heads][T][n_rows]; empty: none.
  std::vector<uint16_t> mask;
  int mask_heads = 1;
  int mask_streams = 1;
  double scale = 1.0;
  double max_bias = 0.0;
  double softcap = 0.0;
  std::vector<float> sinks;  // [n_heads]; empty: none
};

struct AttentionRow {
  std::vector<double> logit;        // [n_rows], -inf where excluded
  std::vector<double> probability;  // [n_rows]; the sink's share is missing from their sum
  std::vector<double> out;          // [Dv]
};

AttentionRow AttendRow(const AttentionProblem& problem, int stream, int token, int head);

// Slope of a head as arXiv 2108.12409 gives it; 1 when max_bias is 0.
double AlibiSlope(double max_bias, int n_heads, int head);

}  // namespace kvarn_reference
#endif  // KVARN_TESTS_REFERENCE_REFERENCE_ATTENTION_H_
