// SPDX-License-Identifier: Apache-2.0
#include "support/paged_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <sstream>
#include <thread>

#include "reference/reference_attention.h"
#include "reference/reference_balance.h"
#include "reference/reference_decoder.h"
#include "reference/reference_half.h"
#include "support/formats.h"

namespace kvarn_test {
namespace {

float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t ToBf16(float x) {  // finite
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

void OnThreads(int n, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::string Describe(const PagedCase& c) {
  std::ostringstream text;
  text << "Dk " << c.key_dim << " Dv " << c.value_dim << " heads " << c.n_heads << "/"
       << c.n_kv_heads << " k" << c.key_bits << "v" << c.value_bits << " g" << c.group << " dtype "
       << c.dtype << " draft " << c.draft << " page rows " << c.page_rows << " seed " << c.seed;
  return text.str();
}

PagedCache::PagedCache(const PagedCase& c, int n_sequences, int max_length, int n_threads)
    : case_(c),
      n_threads_(n_threads),
      max_tiles_((max_length + c.group - 1) / c.group),
      random_(c.seed),
      records_(0) {
  kvarn_paged_step& s = step_;
  s.key_format = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CPU, c.key_bits, c.group, c.key_dim};
  s.value_format = {KVARN_VALUE,  KVARN_BALANCED, KVARN_ORDER_CPU,
                    c.value_bits, c.group,        c.value_dim};
  s.dtype = c.dtype;
  s.n_heads = c.n_heads;
  s.n_kv_heads = c.n_kv_heads;
  s.scale = static_cast<float>(1.0 / std::sqrt(c.key_dim));
  s.softcap = c.softcap;
  s.ring_rows = c.group + c.draft;
  s.ring_history = 1 + c.draft;
  s.ring_page_rows = c.page_rows;
  s.n_ring_pages = (s.ring_rows + s.ring_history + c.page_rows - 1) / c.page_rows;

  // Twice the blocks that are in use, handed out at random; whatever they held before is poison.
  const int n_blocks = 2 * n_sequences * max_tiles_ + 1;
  for (int b = 1; b < n_blocks; ++b) free_blocks_.push_back(b);
  const size_t key_bytes = kvarn_record_bytes(&s.key_format);
  const size_t pair = key_bytes + kvarn_record_bytes(&s.value_format);
  records_ = Block(pair * static_cast<size_t>(n_blocks * c.n_kv_heads), 0xFF);
  s.key_records = records_.data();
  s.value_records = records_.data() + key_bytes;
  s.key_head_stride = s.value_head_stride = static_cast<int64_t>(pair);
  s.key_block_stride = s.value_block_stride = static_cast<int64_t>(pair) * c.n_kv_heads;

  s.ring_page_stride = static_cast<int64_t>(kvarn_paged_ring_row_bytes(&s)) * c.page_rows + 8;
  for (int p = 0; p < s.n_ring_pages; ++p) {
    ring_pages_.emplace_back(
        static_cast<size_t>(s.ring_page_stride) * 2 * static_cast<size_t>(n_sequences), 0xFF);
    ring_bases_.push_back(ring_pages_.back().data());
  }
  s.ring_pages = ring_bases_.data();
  s.ring_table_stride = s.n_ring_pages;
  s.block_table_stride = max_tiles_;
  for (int i = 0; i < n_sequences; ++i) {
    sequences_.emplace_back();
    sequences_.back().content = static_cast<uint64_t>(i) + 1;
    for (int p = 0; p < s.n_ring_pages; ++p) {
      sequences_.back().pages.push_back(2 * i + random_.Below(2));
    }
    Restart(i);
  }
}

void PagedCache::Restart(int sequence) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  s.length = 0;
  s.draft.clear();
  free_blocks_.insert(free_blocks_.end(), s.blocks.begin(), s.blocks.end());
  s.blocks.clear();
  for (int tile = 0; tile < max_tiles_; ++tile) {
    std::swap(free_blocks_[random_.Next() % free_blocks_.size()], free_blocks_.back());
    s.blocks.push_back(free_blocks_.back());
    free_blocks_.pop_back();
  }
}

void PagedCache::Share(int sequence, int other, int tiles) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const Sequence& from = sequences_[static_cast<size_t>(other)];
  ASSERT_EQ(s.length, 0);
  s.content = from.content;
  std::copy_n(from.blocks.begin(), tiles, s.blocks.begin());
  s.length = tiles * case_.group;
  s.draft.assign(static_cast<size_t>(s.length), false);
}

void PagedCache::TakeBack(int sequence, int count) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  s.length -= count;
  s.draft.resize(static_cast<size_t>(s.length));
}

float PagedCache::Rounded(float x) const {
  if (case_.dtype == KVARN_BF16) return FromBf16(ToBf16(x));
  if (case_.dtype == KVARN_FP16) {
    return static_cast<float>(
        kvarn_reference::HalfToDouble(kvarn_reference::HalfFromFloat(x, nullptr)));
  }
  return x;
}

void PagedCache::Append(std::vector<uint8_t>* bytes, float x) const {
  uint8_t raw[4];
  if (case_.dtype == KVARN_FP32) {
    std::memcpy(raw, &x, 4);
  } else {
    uint16_t bits =
        case_.dtype == KVARN_BF16 ? ToBf16(x) : kvarn_reference::HalfFromFloat(x, nullptr);
    if (case_.dtype == KVARN_FP16 && std::isinf(x)) bits = x > 0 ? 0x7C00 : 0xFC00;  // not 65504
    std::memcpy(raw, &bits, 2);
  }
  bytes->insert(bytes->end(), raw, raw + Element());
}

double PagedCache::At(const std::vector<uint8_t>& bytes, size_t index) const {
  if (case_.dtype == KVARN_FP32) {
    float x = 0;
    std::memcpy(&x, bytes.data() + 4 * index, 4);
    return x;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + 2 * index, 2);
  return case_.dtype == KVARN_BF16 ? FromBf16(bits) : kvarn_reference::HalfToDouble(bits);
}

std::vector<float> PagedCache::Row(const Sequence& s, Rows what, int position, int head) const {
  const bool draft = s.draft[static_cast<size_t>(position)];
  Random random((s.content << 40) + (draft ? uint64_t{1} << 39 : 0) +
                (static_cast<uint64_t>(position) << 16) + (static_cast<uint64_t>(what) << 12) +
                static_cast<uint64_t>(head));
  std::vector<float> row;
  const int dim = what == Rows::kValue ? case_.value_dim : case_.key_dim;
  if (position == case_.poison && what != Rows::kQuery) {
    return std::vector<float>(static_cast<size_t>(dim), 0.0F);
  }
  for (int d = 0; d < dim; ++d) {
    const double spread = what == Rows::kValue ? 1.0 : 0.25 + 1.75 * d / dim;
    row.push_back(Rounded(static_cast<float>(random.Normal() * spread)));
  }
  return row;
}

void PagedCache::Step(const std::vector<Tokens>& tokens, bool draft) {
  query_start_.assign(1, 0);
  lengths_.clear();
  block_table_.clear();
  ring_table_.clear();
  query_.clear();
  keys_.clear();
  values_.clear();
  for (const Tokens& part : tokens) {
    Sequence& s = sequences_[static_cast<size_t>(part.sequence)];
    for (int i = 0; i < part.count; ++i) {
      const int position = s.length + i;
      s.draft.push_back(draft);
      for (int h = 0; h < case_.n_heads; ++h) {
        for (const float x : Row(s, Rows::kQuery, position, h)) Append(&query_, x);
      }
      for (int h = 0; h < case_.n_kv_heads; ++h) {
        const float poison = position != case_.poison ? 0.0F : h % 2 == 0 ? NAN : INFINITY;
        for (const float x : Row(s, Rows::kKey, position, h)) Append(&keys_, x + poison);
        for (const float x : Row(s, Rows::kValue, position, h)) Append(&values_, x - poison);
      }
    }
    s.length += part.count;
    query_start_.push_back(query_start_.back() + part.count);
    lengths_.push_back(s.length);
    block_table_.insert(block_table_.end(), s.blocks.begin(), s.blocks.end());
    ring_table_.insert(ring_table_.end(), s.pages.begin(), s.pages.end());
  }
  const size_t n_tokens = static_cast<size_t>(query_start_.back());
  out_.assign(n_tokens * static_cast<size_t>(case_.n_heads * case_.value_dim) * Element() + 1,
              0xFF);
  for (auto* bytes : {&query_, &keys_, &values_}) bytes->push_back(0);  // never empty
  for (auto* numbers : {&lengths_, &block_table_, &ring_table_}) numbers->reserve(1);
  RunStep();
  if (!testing::Test::HasFailure()) Compare(tokens);
}

void PagedCache::RunStep() {
  kvarn_paged_step& s = step_;
  const auto bytes = [&](int n) { return static_cast<int64_t>(Element()) * n; };
  s.n_sequences = static_cast<int32_t>(lengths_.size());
  s.query_start = query_start_.data();
  s.lengths = lengths_.data();
  s.block_table = block_table_.data();
  s.ring_table = ring_table_.data();
  s.query = query_.data();
  s.keys = keys_.data();
  s.values = values_.data();
  s.out = out_.data();
  s.query_head_stride = s.key_row_stride = bytes(case_.key_dim);
  s.value_row_stride = s.out_head_stride = bytes(case_.value_dim);
  s.query_token_stride = s.query_head_stride * case_.n_heads;
  s.key_token_stride = s.key_row_stride * case_.n_kv_heads;
  s.value_token_stride = s.value_row_stride * case_.n_kv_heads;
  s.out_token_stride = s.out_head_stride * case_.n_heads;
  ASSERT_EQ(kvarn_paged_check(&s), KVARN_OK);
  OnThreads(n_threads_, [&](int thread) {
    kvarn_counts counts = {};
    EXPECT_EQ(kvarn_paged_seal(&s, thread, n_threads_, &counts), KVARN_OK);
    EXPECT_EQ(counts.values_saturated, 0U);
    EXPECT_TRUE(counts.rows_zeroed == 0 || case_.poison >= 0);
  });
  Block workspace(kvarn_paged_attention_workspace_bytes(&s, n_threads_), 0xFF);
  ASSERT_EQ(kvarn_paged_attention_begin(&s, workspace.data(), n_threads_), KVARN_OK);
  OnThreads(n_threads_, [&](int thread) {
    kvarn_paged_attention_run(&s, workspace.data(), thread, n_threads_);
  });
  OnThreads(n_threads_, [&](int thread) { kvarn_paged_store(&s, thread, n_threads_); });
}

// Softmax over decoded records below the first tile that was not complete before the step, exact
// rows from there on.
std::vector<double> PagedCache::Expected(int sequence, int computed, int position, int head,
                                         double* bound) {
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const int kv_head = head / (case_.n_heads / case_.n_kv_heads);
  kvarn_reference::AttentionProblem p;
  p.n_rows = position + 1;
  p.key_dim = case_.key_dim;
  p.value_dim = case_.value_dim;
  p.scale = static_cast<double>(step_.scale);
  p.softcap = static_cast<double>(case_.softcap);
  p.keys.emplace_back();
  p.values.emplace_back();
  const int sealed = computed / case_.group * case_.group;
  for (const bool key : {true, false}) {
    std::vector<double>& rows = key ? p.keys[0] : p.values[0];
    const kvarn_format& format = key ? step_.key_format : step_.value_format;
    const auto* first = static_cast<const uint8_t*>(key ? step_.key_records : step_.value_records);
    for (int tile = 0; tile * case_.group < std::min(sealed, p.n_rows); ++tile) {
      const uint8_t* record = first + s.blocks[static_cast<size_t>(tile)] * step_.key_block_stride +
                              kv_head * step_.key_head_stride;
      std::vector<double>& decoded = decoded_[record];
      if (decoded.empty()) {
        decoded = kvarn_reference::Decode(kvarn_reference::FromCpu(ToShape(format), record));
      }
      rows.insert(rows.end(), decoded.begin(), decoded.end());
    }
    for (int x = sealed; x < p.n_rows; ++x) {
      for (const float value : Row(s, key ? Rows::kKey : Rows::kValue, x, kv_head)) {
        rows.push_back(static_cast<double>(value));
      }
    }
  }
  p.query = Row(s, Rows::kQuery, position, head);
  const std::vector<double> out = AttendRow(p, 0, 0, 0).out;
  // Weights of records are 15-bit integers: a logit is off by no more than half a step of the
  // largest weight times the codes, about 2^-15 sqrt(Dk) of the query's norm times the key's, here
  // below 2^-9, and the values' weights by 2^-16 of the largest, on 2-norms of values. Then the
  // output is rounded to its type.
  double largest = 0.0;
  for (int x = 0; x < p.n_rows; ++x) {
    double square = 0.0;
    for (int d = 0; d < case_.value_dim; ++d) {
      square += std::pow(p.values[0][static_cast<size_t>(x * case_.value_dim + d)], 2);
    }
    largest = std::max(largest, std::sqrt(square));
  }
  const double step = case_.dtype == KVARN_BF16   ? 0x1p-8
                      : case_.dtype == KVARN_FP16 ? 0x1p-11
                                                  : 0x1p-23;
  double norm = 0.0;
  for (const double x : out) norm += x * x;
  const double records = sealed > 0 ? 0x1p-9 : 0x1p-20;
  *bound = records * largest + step * std::sqrt(norm);
  return out;
}

void PagedCache::Compare(const std::vector<Tokens>& tokens) {
  decoded_.clear();
  size_t at = 0;
  for (const Tokens& part : tokens) {
    const int length = Length(part.sequence);
    for (int i = 0; i < part.count; ++i) {
      for (int head = 0; head < case_.n_heads; ++head) {
        double bound = 0.0;
        const int position = length - part.count + i;
        const bool checked = i < 2 || i >= part.count - 2 || random_.Chance(0.05);
        if (!checked) {
          at += static_cast<size_t>(case_.value_dim);
          continue;
        }
        const std::vector<double> want =
            Expected(part.sequence, length - part.count, position, head, &bound);
        double off = 0.0;
        for (const double x : want) off += std::pow(At(out_, at++) - x, 2);
        ASSERT_LE(std::sqrt(off), bound)
            << "sequence " << part.sequence << " position " << position << " head " << head;
        worst_share_ = std::max(worst_share_, std::sqrt(off) / bound);
      }
    }
  }
  EXPECT_EQ(out_.back(), 0xFF) << "written beyond the output";
}

std::vector<uint8_t> PagedCache::Records(int sequence, int tile) const {
  const int32_t block = sequences_[static_cast<size_t>(sequence)].blocks[static_cast<size_t>(tile)];
  const uint8_t* from = records_.data() + block * step_.key_block_stride;
  return {from, from + step_.key_block_stride};
}

std::vector<int8_t> PagedCache::Balance(int sequence, int tile, int head) const {
  const std::vector<uint8_t> bytes = Records(sequence, tile);
  return kvarn_reference::FromCpu(ToShape(step_.key_format),
                                  bytes.data() + head * step_.key_head_stride)
      .balance;
}

std::vector<int8_t> PagedCache::WantedBalance(int sequence, int head) const {
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const int heads = case_.n_heads / case_.n_kv_heads;
  std::vector<float> keys;
  std::vector<double> squares(static_cast<size_t>(case_.key_dim), 0.0);
  for (int x = 0; x < case_.group; ++x) {
    const std::vector<float> key = Row(s, Rows::kKey, x, head);
    keys.insert(keys.end(), key.begin(), key.end());
    for (int h = head * heads; h < (head + 1) * heads; ++h) {
      const std::vector<float> query = Row(s, Rows::kQuery, x, h);
      for (size_t d = 0; d < query.size(); ++d) {
        squares[d] += static_cast<double>(query[d]) * static_cast<double>(query[d]);
      }
    }
  }
  std::vector<float> query_ms;
  for (const double square : squares) {
    query_ms.push_back(static_cast<float>(square / (heads * case_.group)));
  }
  return kvarn_reference::Balance(case_.key_dim, keys.data(), case_.group, query_ms.data());
}

}  // namespace kvarn_test
