// SPDX-License-Identifier: Apache-2.0
//
// What the cache should hold after the rows of some sequences were written, on the host: the rows
// themselves, and the records that the CPU makes of them.
#ifndef KVARN_TESTS_CUDA_APPEND_HOST_H_
#define KVARN_TESTS_CUDA_APPEND_HOST_H_

#include <cstdint>
#include <random>
#include <vector>

#include "kvarn/kvarn_cuda.h"

namespace kvarn_cuda_test {

struct AppendShape {
  kvarn_format key, value;
  kvarn_dtype dtype;
  int n_sequences, n_kv_heads, heads_per_kv;
  int ring_rows, tail_rows, balance_tile;
  bool sink;
  bool queries;  // statistics of queries decide the balance too

  int Group() const { return key.group; }
  int KeyDim() const { return key.head_dim; }
  int ValueDim() const { return value.head_dim; }
  int SealedTiles(int rows) const { return rows > tail_rows ? (rows - tail_rows) / Group() : 0; }
};

// Rows of one sequence, by position: keys [n_kv_heads][Dk], values [n_kv_heads][Dv], queries
// [n_heads][Dk].
struct HostRow {
  std::vector<uint16_t> key, value, query;
};
using HostSequence = std::vector<HostRow>;

HostRow MakeHostRow(const AppendShape& shape, std::mt19937* random);

// A row of one head as the cache keeps it: zeros if a value is not finite.
std::vector<uint16_t> KeptRow(const std::vector<uint16_t>& row, int head, int dim,
                              kvarn_dtype dtype);

// Record of a full tile, made by the CPU library.
std::vector<uint8_t> HostRecord(const AppendShape& shape, const HostSequence& rows, int tile,
                                int head, bool key);

}  // namespace kvarn_cuda_test
#endif  // KVARN_TESTS_CUDA_APPEND_HOST_H_
