// SPDX-License-Identifier: Apache-2.0
#include "append_device.h"

#include <algorithm>
#include <numeric>

namespace kvarn_cuda_test {
namespace {

size_t Size(int64_t a, int64_t b = 1, int64_t c = 1) { return static_cast<size_t>(a * b * c); }

}  // namespace

DeviceCache::DeviceCache(const AppendShape& s, int max_rows, int max_tiles)
    : shape_(s),
      max_tiles_(max_tiles),
      blocks_(Size(s.n_sequences, max_tiles)),
      key_records_(Size(s.n_sequences, max_tiles, s.n_kv_heads) * kvarn_record_bytes(&s.key)),
      value_records_(Size(s.n_sequences, max_tiles, s.n_kv_heads) * kvarn_record_bytes(&s.value)),
      exact_keys_(Size(int64_t{s.n_sequences} * RowsOfSequence(), s.n_kv_heads, s.KeyDim())),
      exact_values_(Size(int64_t{s.n_sequences} * RowsOfSequence(), s.n_kv_heads, s.ValueDim())),
      query_rms_(Size(int64_t{s.n_sequences} * RowsOfSequence(), s.n_kv_heads, s.KeyDim())),
      new_keys_(Size(max_rows, s.n_kv_heads, s.KeyDim())),
      new_values_(Size(max_rows, s.n_kv_heads, s.ValueDim())),
      query_(Size(max_rows, s.n_kv_heads * s.heads_per_kv, s.KeyDim())),
      out_(Size(max_rows, s.n_kv_heads * s.heads_per_kv, s.ValueDim())),
      row_begin_(Size(s.n_sequences + 1)),
      lengths_(Size(s.n_sequences)),
      sealed_(Size(s.n_sequences)),
      ring_base_(Size(s.n_sequences, RingChunks())),
      sink_rows_(Size(s.n_sequences)),
      block_table_(Size(s.n_sequences, max_tiles)) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
  std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(1));
  block_table_.Upload(blocks_);
  // Chunks of rings and sinks in any order.
  std::vector<int32_t> chunks(Size(s.n_sequences, RingChunks() + 1));
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i] = static_cast<int32_t>(i) * s.Group();
  std::shuffle(chunks.begin(), chunks.end(), std::mt19937(2));
  sink_row_.assign(chunks.begin(), chunks.begin() + s.n_sequences);
  ring_rows_.assign(chunks.begin() + s.n_sequences, chunks.end());
  ring_base_.Upload(ring_rows_);
  sink_rows_.Upload(sink_row_);
  for (auto* records : {&key_records_, &value_records_}) {
    Check(cudaMemset(records->get(), 0xEE, records->bytes()), "memset");
  }
  for (auto* rows : {&exact_keys_, &exact_values_, &query_rms_, &out_}) {
    Check(cudaMemset(rows->get(), 0, rows->bytes()), "memset");
  }

  kvarn_cuda_append& a = append_;
  const auto bytes = [](int64_t values) { return values * 2; };
  a.key_format = s.key;
  a.value_format = s.value;
  a.dtype = s.dtype;
  a.n_sequences = s.n_sequences;
  a.n_rows = max_rows;
  a.n_heads = s.n_kv_heads * s.heads_per_kv;
  a.n_kv_heads = s.n_kv_heads;
  a.row_begin = row_begin_.get();
  a.lengths = lengths_.get();
  a.new_keys = new_keys_.get();
  a.new_values = new_values_.get();
  a.new_key_head_stride = a.exact_key_head_stride = bytes(s.KeyDim());
  a.new_value_head_stride = a.exact_value_head_stride = bytes(s.ValueDim());
  a.new_key_row_stride = a.exact_key_row_stride = bytes(int64_t{s.n_kv_heads} * s.KeyDim());
  a.new_value_row_stride = a.exact_value_row_stride = bytes(int64_t{s.n_kv_heads} * s.ValueDim());
  a.query = s.queries ? query_.get() : nullptr;
  a.query_head_stride = bytes(s.KeyDim());
  a.query_row_stride = a.query_head_stride * a.n_heads;
  a.key_records = key_records_.get();
  a.value_records = value_records_.get();
  a.key_head_stride = static_cast<int64_t>(kvarn_record_bytes(&s.key));
  a.value_head_stride = static_cast<int64_t>(kvarn_record_bytes(&s.value));
  a.key_block_stride = a.key_head_stride * s.n_kv_heads;
  a.value_block_stride = a.value_head_stride * s.n_kv_heads;
  a.block_table = block_table_.get();
  a.block_table_stride = max_tiles;
  a.exact_keys = exact_keys_.get();
  a.exact_values = exact_values_.get();
  a.ring_rows = s.ring_rows;
  a.ring_base = ring_base_.get();
  a.ring_base_stride = RingChunks();
  a.sink_rows = s.sink ? sink_rows_.get() : nullptr;
  a.query_rms = s.queries ? query_rms_.get() : nullptr;
  a.query_rms_row_stride = bytes(int64_t{s.n_kv_heads} * s.KeyDim());
  a.tail_rows = s.tail_rows;
  a.balance_tile = s.balance_tile;
  a.sealed_rows = sealed_.get();
  append_workspace_ =
      std::make_unique<DeviceArray<uint8_t>>(kvarn_cuda_append_workspace_bytes(&append_));

  kvarn_cuda_decode& d = decode_;
  d.key_format = s.key;
  d.value_format = s.value;
  d.dtype = s.dtype;
  d.n_sequences = s.n_sequences;
  d.n_heads = a.n_heads;
  d.n_kv_heads = s.n_kv_heads;
  d.key_records = a.key_records;
  d.value_records = a.value_records;
  d.key_block_stride = a.key_block_stride;
  d.key_head_stride = a.key_head_stride;
  d.value_block_stride = a.value_block_stride;
  d.value_head_stride = a.value_head_stride;
  d.block_table = a.block_table;
  d.block_table_stride = max_tiles;
  d.exact_keys = a.exact_keys;
  d.exact_values = a.exact_values;
  d.exact_key_row_stride = a.exact_key_row_stride;
  d.exact_key_head_stride = a.exact_key_head_stride;
  d.exact_value_row_stride = a.exact_value_row_stride;
  d.exact_value_head_stride = a.exact_value_head_stride;
  d.ring_rows = s.ring_rows;
  d.lengths = a.lengths;
  d.sealed_rows = sealed_.get();
  d.sink_rows = a.sink_rows;
  d.ring_base = a.ring_base;
  d.ring_base_stride = a.ring_base_stride;
  d.query = query_.get();
  d.query_head_stride = a.query_head_stride;
  d.query_token_stride = a.query_row_stride;
  d.out = out_.get();
  d.out_head_stride = bytes(s.ValueDim());
  d.out_token_stride = d.out_head_stride * d.n_heads;
  d.scale = 0.05F;
}

void DeviceCache::Share(int sequence, int other, int tiles) {
  const auto from = blocks_.begin() + static_cast<ptrdiff_t>(other) * max_tiles_;
  std::copy(from, from + tiles, blocks_.begin() + static_cast<ptrdiff_t>(sequence) * max_tiles_);
  block_table_.Upload(blocks_);
}

void DeviceCache::Upload(const Step& step) {
  row_begin_.Upload(step.row_begin);
  lengths_.Upload(step.lengths);
  const auto copy = [](DeviceArray<uint16_t>& to, const std::vector<uint16_t>& from) {
    Check(cudaMemcpy(to.get(), from.data(), from.size() * 2, cudaMemcpyHostToDevice), "upload");
  };
  copy(new_keys_, step.keys);
  copy(new_values_, step.values);
  copy(query_, step.queries);
}

kvarn_status DeviceCache::Append(void* stream) {
  const kvarn_status status = kvarn_cuda_append_plan(&append_, append_workspace_->get(), stream);
  if (status != KVARN_OK) return status;
  return kvarn_cuda_append_run(&append_, append_workspace_->get(), stream);
}

kvarn_status DeviceCache::Attend(int n_tokens, void* stream) {
  decode_.n_tokens = n_tokens;
  decode_.query_sequence_stride = decode_.query_token_stride * n_tokens;
  decode_.out_sequence_stride = decode_.out_token_stride * n_tokens;
  if (decode_workspace_ == nullptr) {
    decode_workspace_ =
        std::make_unique<DeviceArray<uint8_t>>(kvarn_cuda_decode_workspace_bytes(&decode_));
  }
  const kvarn_status status = kvarn_cuda_decode_plan(&decode_, decode_workspace_->get(), stream);
  if (status != KVARN_OK) return status;
  return kvarn_cuda_decode_run(&decode_, decode_workspace_->get(), stream);
}

}  // namespace kvarn_cuda_test
