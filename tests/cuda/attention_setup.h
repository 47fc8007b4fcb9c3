// SPDX-License-Identifier: Apache-2.0
//
// A decode or prefill call over random sequences, and what its output should be.
#ifndef KVARN_TESTS_CUDA_ATTENTION_SETUP_H_
#define KVARN_TESTS_CUDA_ATTENTION_SETUP_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device_array.h"
#include "kvarn/kvarn_cuda.h"
#include "reference/reference_record.h"

namespace kvarn_cuda_test {

struct AttentionCase {
  int key_dim = 128, value_dim = 128;
  int key_bits = 4, value_bits = 2;
  int group = 128;
  int heads_per_kv = 8, n_kv_heads = 2;
  int n_tokens = 1;  // of a sequence, in decode
  kvarn_dtype dtype = KVARN_FP16;
  std::vector<int> lengths = {700};
  bool sink = true;
  float softcap = 0.0F;
  int window = 0;
  float max_bias = 0.0F;
  bool sink_logits = false;
  bool mask = false;
  float key_gain = 1.0F;  // scale of the rows: tiny and huge tensors
  float value_gain = 1.0F;
  bool balance_changes = false;  // tiles of one sequence with different s
  std::vector<int> chunks;       // prefill: query tokens of each sequence; empty: decode
  int seal_lag = -1;             // of prefill
  bool tile_table = false;       // tiles in any state: records, exact, empty
  bool block_table = true;       // without: by tile

  std::string Name() const;
};

// Every format, head dim, group, grouping, width and option, each at least once.
std::vector<AttentionCase> DecodeCases();
std::vector<AttentionCase> PrefillCases();

// A program of such cases: only those whose name contains `part`, if it is not null. Exit status.
int RunCases(const std::vector<AttentionCase>& cases, const char* part);

struct Errors {
  double worst_relative = 0.0;  // 2-norm of the error of a row over that of the row
  double worst_share = 0.0;     // of the derived bound
};

class AttentionSetup {
 public:
  explicit AttentionSetup(const AttentionCase& c);

  kvarn_status Run();
  bool RepeatsExactly();  // a second run, of a captured graph, gives the same bits
  Errors Compare();

 private:
  struct HeadTile {                    // what an independent decoder makes of a record pair
    std::vector<double> keys, values;  // [group][dim]
    std::vector<double> key_size;      // [group][Dk] |K^ - z| + |z| in the rotated frame
    std::vector<int8_t> balance;
  };
  struct Sequence {
    int length, sealed, sink_row;
    int n_tokens, first_token;       // flat index of the first query token
    std::vector<int32_t> ring_base;  // by chunk
    std::vector<int32_t> places;     // by tile, with a tile table
  };

  void PlaceRows(std::mt19937* random);
  void PlaceTiles(std::mt19937* random);
  void MakeRecords(std::mt19937* random);
  void MakeRows(std::mt19937* random);
  void MakeChunk(std::mt19937* random);
  void MakeQueries(std::mt19937* random);
  kvarn_status Launch(cudaStream_t stream);
  const HeadTile& Tile(int block, int head) const {
    return tiles_[static_cast<size_t>(block * case_.n_kv_heads + head)];
  }
  // Row at a position as the query at position `last` should see it, and the tile it comes from
  // (null: exact). Nothing is put into key and value if the position takes no part.
  const HeadTile* RowAt(int sequence, int head, int position, int last, std::vector<double>* key,
                        std::vector<double>* value) const;
  double Bound(int sequence, int token, int head, const std::vector<double>& probability,
               const std::vector<std::vector<double>>& values,
               const std::vector<const HeadTile*>& tile_of, const std::vector<double>& out) const;
  void CompareRow(int sequence, int token, int head, const std::vector<uint16_t>& got,
                  Errors* errors) const;

  AttentionCase case_;
  bool prefill_;
  int n_heads_;
  int n_query_tokens_ = 0;  // of all sequences
  int n_blocks_ = 0;
  size_t n_exact_rows_ = 0;
  int tiles_per_sequence_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> block_table_;
  std::vector<HeadTile> tiles_;  // [block][head]
  std::vector<uint8_t> records_;
  std::vector<uint16_t> exact_keys_, exact_values_;  // [row][head][dim]
  std::vector<uint16_t> chunk_keys_, chunk_values_;  // [query token][head][dim]
  std::vector<uint16_t> query_, mask_;
  std::vector<float> sinks_;
  kvarn_cuda_decode call_ = {};
  kvarn_cuda_prefill prefill_call_ = {};
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> device_;
  std::unique_ptr<DeviceArray<uint16_t>> out_;
  std::unique_ptr<DeviceArray<uint8_t>> workspace_;

  template <typename T>
  const T* Upload(const std::vector<T>& host);
};

}  // namespace kvarn_cuda_test
#endif  // KVARN_TESTS_CUDA_ATTENTION_SETUP_H_
