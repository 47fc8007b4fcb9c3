// SPDX-License-Identifier: Apache-2.0
//
// A cache of several sequences on the device, and the calls that fill and read it.
#ifndef KVARN_TESTS_CUDA_APPEND_DEVICE_H_
#define KVARN_TESTS_CUDA_APPEND_DEVICE_H_

#include <memory>
#include <random>

#include "append_host.h"
#include "device_array.h"

namespace kvarn_cuda_test {

// The new rows of a step.
struct Step {
  std::vector<int32_t> row_begin, lengths;
  std::vector<uint16_t> keys, values, queries;
};

class DeviceCache {
 public:
  // Room for max_rows rows in a step and max_tiles tiles in a sequence.
  DeviceCache(const AppendShape& shape, int max_rows, int max_tiles);

  // The first `tiles` blocks of `sequence` are those of `other`.
  void Share(int sequence, int other, int tiles);
  void Upload(const Step& step);
  kvarn_status Append(void* stream);  // plan and run
  // Attention of n_tokens query tokens a sequence, the last rows of each; queries are the new ones.
  kvarn_status Attend(int n_tokens, void* stream);

  int64_t BlockOf(int sequence, int tile) const {
    return blocks_[static_cast<size_t>(sequence * max_tiles_ + tile)];
  }
  int64_t RingRow(int sequence, int position) const {
    const int chunk = position / shape_.Group() % RingChunks();
    return ring_rows_[static_cast<size_t>(sequence * RingChunks() + chunk)] +
           position % shape_.Group();
  }
  int64_t SinkRow(int sequence) const { return sink_row_[static_cast<size_t>(sequence)]; }

  // [blocks][n_kv_heads] records, [rows][n_kv_heads][D] exact rows.
  std::vector<uint8_t> Records(bool key) {
    return (key ? key_records_ : value_records_).Download();
  }
  std::vector<uint16_t> Exact(bool key) { return (key ? exact_keys_ : exact_values_).Download(); }
  std::vector<int32_t> SealedRows() { return sealed_.Download(); }
  std::vector<uint16_t> Out() { return out_.Download(); }

 private:
  int RingChunks() const { return shape_.ring_rows / shape_.Group(); }
  int RowsOfSequence() const { return shape_.ring_rows + shape_.Group(); }

  AppendShape shape_;
  int max_tiles_;
  std::vector<int32_t> blocks_;
  std::vector<int32_t> ring_rows_;  // [sequence][chunk] first row
  std::vector<int32_t> sink_row_;
  kvarn_cuda_append append_ = {};
  kvarn_cuda_decode decode_ = {};
  DeviceArray<uint8_t> key_records_, value_records_;
  DeviceArray<uint16_t> exact_keys_, exact_values_, query_rms_, new_keys_, new_values_, query_,
      out_;
  DeviceArray<int32_t> row_begin_, lengths_, sealed_, ring_base_, sink_rows_, block_table_;
  std::unique_ptr<DeviceArray<uint8_t>> append_workspace_, decode_workspace_;
};

}  // namespace kvarn_cuda_test
#endif  // KVARN_TESTS_CUDA_APPEND_DEVICE_H_
