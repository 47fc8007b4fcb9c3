// SPDX-License-Identifier: Apache-2.0
#include "attention_setup.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kvarn/kvarn.h"
#include "reference/reference_decoder.h"
#include "sixteen_bit.h"

namespace kvarn_cuda_test {
namespace {

constexpr int kRingRows = 256;
// Tiles share records beyond that: encoding on the CPU is slow.
constexpr int kMaxDecodeBlocks = 24;
constexpr int kMaxPrefillBlocks = 8;

kvarn_reference::Shape ShapeOf(const kvarn_format& format) {
  return {format.role == KVARN_KEY, true, format.bits, format.group, format.head_dim};
}

kvarn_reference::Record Parse(const kvarn_format& format, const uint8_t* bytes) {
  kvarn_format portable = format;
  portable.order = KVARN_ORDER_PORTABLE;
  std::vector<uint8_t> copy(kvarn_record_bytes(&portable));
  kvarn_reorder(&format, bytes, &portable, copy.data());
  return kvarn_reference::FromPortable(ShapeOf(format), copy.data());
}

// Rows of `from` values, each made `to` long by zeros.
std::vector<int32_t> Widened(const std::vector<int32_t>& rows, int from, int to) {
  std::vector<int32_t> wide;
  for (auto row = rows.begin(); row != rows.end(); row += from) {
    wide.insert(wide.end(), row, row + from);
    wide.resize(wide.size() + static_cast<size_t>(to - from));
  }
  return wide;
}

}  // namespace

AttentionSetup::AttentionSetup(const AttentionCase& c)
    : case_(c), prefill_(!c.chunks.empty()), n_heads_(c.heads_per_kv * c.n_kv_heads) {
  std::mt19937 random(static_cast<unsigned>(c.key_dim * 31 + c.value_bits * 7 + c.n_tokens));
  call_.key_format = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, c.key_bits, c.group, c.key_dim};
  call_.value_format = {KVARN_VALUE,  KVARN_BALANCED, KVARN_ORDER_CUDA,
                        c.value_bits, c.group,        c.value_dim};
  call_.dtype = c.dtype;
  call_.query_dtype = c.float_queries ? KVARN_FP32 : c.dtype;
  call_.n_sequences = static_cast<int>(c.lengths.size());
  call_.n_tokens = prefill_ ? *std::max_element(c.chunks.begin(), c.chunks.end()) : c.n_tokens;
  call_.n_heads = n_heads_;
  call_.n_kv_heads = c.n_kv_heads;
  call_.ring_rows = kRingRows;
  call_.scale = 1.0F / std::sqrt(static_cast<float>(c.key_dim)) / c.key_gain;
  call_.softcap = c.softcap;
  call_.window = c.window;
  call_.max_bias = c.max_bias;
  for (const int length : c.lengths) {
    const int index = static_cast<int>(sequences_.size());
    Sequence s = {};
    s.length = length;
    s.n_tokens = prefill_ ? c.chunks[static_cast<size_t>(index)] : c.n_tokens;
    s.first_token = n_query_tokens_;
    n_query_tokens_ += s.n_tokens;
    const int start = length - s.n_tokens;
    // Some sequences seal only a part of what they could, as after a roll-back.
    s.sealed = std::max(start - (index % 3) * 40, 0) / c.group * c.group;
    const int in_ring = (prefill_ ? start : length) - s.sealed;
    if (in_ring > kRingRows) s.sealed = start / c.group * c.group;
    sequences_.push_back(s);
    tiles_per_sequence_ = std::max(tiles_per_sequence_, (length + c.group - 1) / c.group);
  }
  if (c.tile_table) {
    PlaceTiles(&random);
  } else {
    PlaceRows(&random);
  }
  MakeRecords(&random);
  MakeRows(&random);
  MakeChunk(&random);
  MakeQueries(&random);
  if (c.mask) MakeMask(&random);
}

// Chunks of rings and sinks in any order.
void AttentionSetup::PlaceRows(std::mt19937* random) {
  const AttentionCase& c = case_;
  n_exact_rows_ = sequences_.size() * static_cast<size_t>(kRingRows + c.group);
  std::vector<int32_t> chunks(sequences_.size() * static_cast<size_t>(kRingRows / c.group + 1));
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i] = static_cast<int32_t>(i) * c.group;
  std::shuffle(chunks.begin(), chunks.end(), *random);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    Sequence& s = sequences_[i];
    s.sink_row = c.sink && i % 4 != 3 ? chunks.back() : -1;
    chunks.pop_back();
    s.ring_base.assign(chunks.end() - kRingRows / c.group, chunks.end());
    chunks.resize(chunks.size() - s.ring_base.size());
  }
}

// Half of the tiles as records, a tenth empty.
void AttentionSetup::PlaceTiles(std::mt19937* random) {
  std::vector<int32_t*> exact;
  for (Sequence& s : sequences_) {
    s.sink_row = -1;
    s.places.resize(static_cast<size_t>((s.length + case_.group - 1) / case_.group));
    for (int32_t& place : s.places) {
      const auto draw = static_cast<int>((*random)() % 10);
      place = draw < 5 ? KVARN_CUDA_TILE_RECORD : draw < 6 ? KVARN_CUDA_TILE_EMPTY : 0;
      if (place == 0) exact.push_back(&place);
    }
  }
  if (case_.planes) {
    plane_rows_ = tiles_per_sequence_ * case_.group;
    n_exact_rows_ = sequences_.size() * static_cast<size_t>(plane_rows_);
    for (Sequence& s : sequences_) {
      for (size_t i = 0; i < s.places.size(); ++i) {  // from the last slot on
        const auto slot = static_cast<int>(s.places.size() - 1 - i);
        if (s.places[i] >= 0) s.places[i] = slot * case_.group;
      }
    }
    return;
  }
  std::shuffle(exact.begin(), exact.end(), *random);
  n_exact_rows_ = exact.size() * static_cast<size_t>(case_.group);
  for (size_t i = 0; i < exact.size(); ++i) *exact[i] = static_cast<int32_t>(i) * case_.group;
}

template <typename T>
const T* AttentionSetup::Upload(const std::vector<T>& host) {
  std::vector<uint8_t> bytes(std::max<size_t>(host.size() * sizeof(T), 16));
  if (!host.empty()) std::memcpy(bytes.data(), host.data(), host.size() * sizeof(T));
  device_.push_back(std::make_unique<DeviceArray<uint8_t>>(bytes));
  return reinterpret_cast<const T*>(device_.back()->get());
}

// Tiles of a sequence in the tables of the call.
int AttentionSetup::TableStride() const {
  return std::max(tiles_per_sequence_, 1) + (case_.spare_table ? 3000 : 0);
}

void AttentionSetup::MakeRecords(std::mt19937* random) {
  const size_t key_bytes = kvarn_record_bytes(&call_.key_format);
  const size_t value_bytes = kvarn_record_bytes(&call_.value_format);
  const size_t pair = key_bytes + value_bytes;
  const size_t block = pair * static_cast<size_t>(case_.n_kv_heads);
  const int table_stride = std::max(tiles_per_sequence_, 1);
  const int n_made = std::min(prefill_ ? kMaxPrefillBlocks : kMaxDecodeBlocks,
                              tiles_per_sequence_ * call_.n_sequences + 1);
  std::vector<uint8_t> made(block * static_cast<size_t>(n_made));
  std::normal_distribution<float> normal;
  const auto key_dim = static_cast<size_t>(case_.key_dim);
  const auto value_dim = static_cast<size_t>(case_.value_dim);
  const auto group = static_cast<size_t>(case_.group);
  std::vector<float> spread(key_dim);
  std::vector<float> bias(key_dim);
  for (size_t d = 0; d < key_dim; ++d) {
    spread[d] = std::exp(0.5F * normal(*random)) * case_.key_gain;
    bias[d] = d % 11 == 3 ? 6.0F * normal(*random) * case_.key_gain : 0.0F;
  }
  std::vector<int8_t> balance(key_dim);
  for (int8_t& e : balance) e = static_cast<int8_t>(4.0F * normal(*random));
  std::vector<float> keys(group * key_dim);
  std::vector<float> values(group * value_dim);
  for (int b = 0; b < n_made; ++b) {
    for (int h = 0; h < case_.n_kv_heads; ++h) {
      for (size_t i = 0; i < keys.size(); ++i) {
        keys[i] = normal(*random) * spread[i % key_dim] + bias[i % key_dim];
      }
      for (float& v : values) v = normal(*random) * case_.value_gain;
      if (case_.balance_changes && b % 2 == 1) balance[static_cast<size_t>(b) % key_dim] ^= 1;
      const size_t at = static_cast<size_t>(b * case_.n_kv_heads + h) * pair;
      kvarn_encode(&call_.key_format, keys.data(), case_.group, nullptr, balance.data(), &made[at],
                   nullptr);
      kvarn_encode(&call_.value_format, values.data(), case_.group, nullptr, nullptr,
                   &made[at + key_bytes], nullptr);
      const kvarn_reference::Record key = Parse(call_.key_format, &made[at]);
      HeadTile& tile = tiles_.emplace_back();
      tile.keys = kvarn_reference::Decode(key);
      tile.values = kvarn_reference::Decode(Parse(call_.value_format, &made[at + key_bytes]));
      tile.balance = key.balance;
      tile.key_size = kvarn_reference::DecodeRotated(key);
      for (size_t i = 0; i < tile.key_size.size(); ++i) {
        const double z = HalfToDouble(key.zero[i % key_dim]);
        tile.key_size[i] = std::fabs(tile.key_size[i] - z) + std::fabs(z);
      }
    }
  }
  std::uniform_int_distribution<int32_t> any(0, n_made - 1);
  made_of_.resize(static_cast<size_t>(call_.n_sequences * table_stride));
  for (int32_t& index : made_of_) index = any(*random);
  if (case_.planes) {
    for (const int32_t index : made_of_) {
      const auto from = made.begin() + static_cast<std::ptrdiff_t>(block) * index;
      records_.insert(records_.end(), from, from + static_cast<std::ptrdiff_t>(block));
    }
    call_.key_sequence_stride = call_.value_sequence_stride =
        static_cast<int64_t>(block) * table_stride;
  } else {
    records_ = made;
    call_.block_table_stride = TableStride();
    call_.block_table = Upload(Widened(made_of_, table_stride, TableStride()));
  }
  call_.key_records = Upload(records_);
  call_.value_records = static_cast<const uint8_t*>(call_.key_records) + key_bytes;
  call_.key_head_stride = call_.value_head_stride = static_cast<int64_t>(pair);
  call_.key_block_stride = call_.value_block_stride = static_cast<int64_t>(block);
}

void AttentionSetup::MakeRows(std::mt19937* random) {
  const size_t rows = n_exact_rows_;
  const auto heads = static_cast<size_t>(case_.n_kv_heads);
  std::normal_distribution<float> normal;
  exact_keys_.resize(rows * heads * static_cast<size_t>(case_.key_dim));
  exact_values_.resize(rows * heads * static_cast<size_t>(case_.value_dim));
  for (uint16_t& x : exact_keys_) x = ToBits(normal(*random) * case_.key_gain, case_.dtype);
  for (uint16_t& x : exact_values_) x = ToBits(normal(*random) * case_.value_gain, case_.dtype);
  std::vector<int32_t> lengths, sealed, sink, ring;
  for (const Sequence& s : sequences_) {
    lengths.push_back(s.length);
    sealed.push_back(s.sealed);
    sink.push_back(s.sink_row);
    ring.insert(ring.end(), s.ring_base.begin(), s.ring_base.end());
  }
  call_.exact_keys = Upload(exact_keys_);
  call_.exact_values = Upload(exact_values_);
  call_.exact_key_head_stride = 2 * case_.key_dim;
  call_.exact_key_row_stride = call_.exact_key_head_stride * case_.n_kv_heads;
  call_.exact_value_head_stride = 2 * case_.value_dim;
  call_.exact_value_row_stride = call_.exact_value_head_stride * case_.n_kv_heads;
  call_.exact_key_sequence_stride = call_.exact_key_row_stride * plane_rows_;
  call_.exact_value_sequence_stride = call_.exact_value_row_stride * plane_rows_;
  call_.lengths = Upload(lengths);
  if (case_.tile_table) {
    call_.tile_table_stride = TableStride();
    std::vector<int32_t> table;
    for (const Sequence& s : sequences_) {
      table.insert(table.end(), s.places.begin(), s.places.end());
      table.resize(table.size() + static_cast<size_t>(call_.tile_table_stride) - s.places.size());
    }
    call_.tile_table = Upload(table);
    call_.ring_rows = 0;
    return;
  }
  call_.sealed_rows = Upload(sealed);
  call_.sink_rows = case_.sink ? Upload(sink) : nullptr;
  call_.ring_base = Upload(ring);
  call_.ring_base_stride = kRingRows / case_.group;
}

void AttentionSetup::MakeChunk(std::mt19937* random) {
  if (!prefill_) return;
  prefill_call_.seal_lag = case_.seal_lag;
  if (case_.tile_table) return;
  std::normal_distribution<float> normal;
  const auto rows = static_cast<size_t>(n_query_tokens_ * case_.n_kv_heads);
  chunk_keys_.resize(rows * static_cast<size_t>(case_.key_dim));
  chunk_values_.resize(rows * static_cast<size_t>(case_.value_dim));
  for (uint16_t& x : chunk_keys_) x = ToBits(normal(*random) * case_.key_gain, case_.dtype);
  for (uint16_t& x : chunk_values_) x = ToBits(normal(*random) * case_.value_gain, case_.dtype);
  std::vector<int32_t> begin = {0};
  for (const Sequence& s : sequences_) begin.push_back(begin.back() + s.n_tokens);
  prefill_call_.total_tokens = n_query_tokens_;
  prefill_call_.query_begin = Upload(begin);
  prefill_call_.chunk_keys = Upload(chunk_keys_);
  prefill_call_.chunk_values = Upload(chunk_values_);
  prefill_call_.chunk_key_head_stride = 2 * case_.key_dim;
  prefill_call_.chunk_key_row_stride = prefill_call_.chunk_key_head_stride * case_.n_kv_heads;
  prefill_call_.chunk_value_head_stride = 2 * case_.value_dim;
  prefill_call_.chunk_value_row_stride = prefill_call_.chunk_value_head_stride * case_.n_kv_heads;
}

void AttentionSetup::MakeQueries(std::mt19937* random) {
  std::normal_distribution<float> normal;
  const auto rows = static_cast<size_t>(n_query_tokens_ * n_heads_);
  query_.resize(rows * static_cast<size_t>(case_.key_dim));
  std::vector<uint16_t> bits;
  for (float& x : query_) {
    x = normal(*random) * 1.5F;
    if (case_.float_queries) continue;
    bits.push_back(ToBits(x, case_.dtype));
    x = ToFloat(bits.back(), case_.dtype);
  }
  const int size = case_.float_queries ? 4 : 2;
  call_.query = case_.float_queries ? static_cast<const void*>(Upload(query_)) : Upload(bits);
  call_.query_head_stride = size * case_.key_dim;
  call_.query_token_stride = call_.query_head_stride * n_heads_;
  call_.query_sequence_stride = call_.query_token_stride * call_.n_tokens;
  out_ = std::make_unique<DeviceArray<uint8_t>>(rows * static_cast<size_t>(size * case_.value_dim));
  call_.out = out_->get();
  call_.out_head_stride = size * case_.value_dim;
  call_.out_token_stride = call_.out_head_stride * n_heads_;
  call_.out_sequence_stride = call_.out_token_stride * call_.n_tokens;
  if (case_.sink_logits) {
    for (int h = 0; h < n_heads_; ++h) sinks_.push_back(normal(*random) * 3.0F);
    call_.sinks = Upload(sinks_);
  }
}

std::vector<float> AttentionSetup::Outputs() {
  const std::vector<uint8_t> bytes = Download();
  std::vector<float> outputs(bytes.size() / (case_.float_queries ? 4 : 2));
  if (case_.float_queries) {
    std::memcpy(outputs.data(), bytes.data(), bytes.size());
    return outputs;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, &bytes[2 * i], sizeof(bits));
    outputs[i] = ToFloat(bits, case_.dtype);
  }
  return outputs;
}

kvarn_status AttentionSetup::Launch(cudaStream_t stream) {
  if (case_.mask_map) {
    const kvarn_status status = kvarn_cuda_mask_map(
        map_mask_, call_.mask_sequence_stride, call_.mask_token_stride, call_.n_sequences,
        call_.n_tokens, static_cast<int>(call_.mask_token_stride / 2), case_.group, map_->get(),
        stream);
    if (status != KVARN_OK) return status;
  }
  if (prefill_) return kvarn_cuda_prefill_run(&prefill_call_, stream);
  const kvarn_status status = kvarn_cuda_decode_plan(&call_, workspace_->get(), stream);
  if (status != KVARN_OK) return status;
  return kvarn_cuda_decode_run(&call_, workspace_->get(), stream);
}

kvarn_status AttentionSetup::Run() {
  prefill_call_.attention = call_;
  const kvarn_status checked =
      prefill_ ? kvarn_cuda_prefill_check(&prefill_call_) : kvarn_cuda_decode_check(&call_);
  if (checked != KVARN_OK) return checked;
  const size_t bytes = prefill_ ? 0 : kvarn_cuda_decode_workspace_bytes(&call_);
  workspace_ = std::make_unique<DeviceArray<uint8_t>>(bytes);
  Check(cudaMemset(workspace_->get(), 0xFF, bytes), "memset");
  Check(cudaMemset(out_->get(), 0xFF, out_->bytes()), "memset");
  const kvarn_status status = Launch(nullptr);
  Check(cudaDeviceSynchronize(), "attention");
  return status;
}

bool AttentionSetup::RepeatsExactly() {
  const std::vector<uint8_t> first = Download();
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Check(cudaStreamCreate(&stream), "stream");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  Launch(stream);
  Check(cudaStreamEndCapture(stream, &graph), "end of capture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  Check(cudaMemset(out_->get(), 0xFF, out_->bytes()), "memset");
  Check(cudaGraphLaunch(exec, stream), "launch");
  Check(cudaStreamSynchronize(stream), "graph run");
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return first == Download();
}

}  // namespace kvarn_cuda_test
