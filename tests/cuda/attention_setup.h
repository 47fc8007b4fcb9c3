// SPDX-License-Identifier: Apache-2.0
//
// A decode or prefill call over random sequences, and what its output should be.
#ifndef KVARN_TESTS_CUDA_ATTENTION_SETUP_H_
#define KVARN_TESTS_CUDA_ATTENTION_SETUP_H_

#include <algorithm>
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
  bool mask_map = false;  // and its map; tiles are hidden, plain or as any mask
  float key_gain = 1.0F;  // scale of the rows: tiny and huge tensors
  float value_gain = 1.0F;
  bool balance_changes = false;  // tiles of one sequence with different s
  std::vector<int> chunks;       // prefill: query tokens of each sequence; empty: decode
  int seal_lag = -1;             // of prefill
  bool tile_table = false;       // tiles in any state: records, exact, empty
  bool planes = false;           // and records and exact rows of sequences lie apart, by tile
  bool float_queries = false;    // and outputs
  bool spare_table = false;      // tables for contexts so long that no cluster does the call

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
  int TableStride() const;
  void MakeRecords(std::mt19937* random);
  void MakeRows(std::mt19937* random);
  void MakeChunk(std::mt19937* random);
  void MakeQueries(std::mt19937* random);
  void MakeMask(std::mt19937* random);
  void HideTiles(std::mt19937* random);
  std::vector<uint16_t> MaskBesideMap() const;
  kvarn_status Launch(cudaStream_t stream);
  // The record pair of a tile.
  const HeadTile& Tile(int sequence, int tile, int head) const {
    const int at = sequence * std::max(tiles_per_sequence_, 1) + tile;
    const int made = made_of_[static_cast<size_t>(at)];
    return tiles_[static_cast<size_t>(made * case_.n_kv_heads + head)];
  }
  // Outputs as they are in device memory, and as numbers.
  std::vector<uint8_t> Download() { return out_->Download(); }
  std::vector<float> Outputs();
  // Row at a position as the query at position `last` should see it, and the tile it comes from
  // (null: exact). Nothing is put into key and value if the position takes no part.
  const HeadTile* RowAt(int sequence, int head, int position, int last, std::vector<double>* key,
                        std::vector<double>* value) const;
  double Bound(int sequence, int token, int head, const std::vector<double>& probability,
               const std::vector<std::vector<double>>& values,
               const std::vector<const HeadTile*>& tile_of, const std::vector<double>& query_noise,
               const std::vector<double>& out) const;
  void CompareRow(int sequence, int token, int head, const std::vector<float>& got,
                  Errors* errors) const;

  AttentionCase case_;
  bool prefill_;
  int n_heads_;
  int n_query_tokens_ = 0;  // of all sequences
  size_t n_exact_rows_ = 0;
  int plane_rows_ = 0;  // exact rows of a sequence where they lie apart
  int tiles_per_sequence_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> made_of_;  // [sequence][tile] which of the made pairs a record is
  std::vector<HeadTile> tiles_;   // [made pair][head]
  std::vector<uint8_t> records_;
  std::vector<uint16_t> exact_keys_, exact_values_;  // [row][head][dim]
  std::vector<uint16_t> chunk_keys_, chunk_values_;  // [query token][head][dim]
  std::vector<float> query_;
  std::vector<uint16_t> mask_;
  std::vector<float> sinks_;
  kvarn_cuda_decode call_ = {};
  kvarn_cuda_prefill prefill_call_ = {};
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> device_;
  std::unique_ptr<DeviceArray<uint8_t>> out_, workspace_, map_;
  const uint16_t* map_mask_ = nullptr;  // device: what the map is made of

  template <typename T>
  const T* Upload(const std::vector<T>& host);
};

}  // namespace kvarn_cuda_test
#endif  // KVARN_TESTS_CUDA_ATTENTION_SETUP_H_
