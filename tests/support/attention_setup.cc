// SPDX-License-Identifier: Apache-2.0
#include "support/attention_setup.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <thread>

#include "reference/reference_half.h"
#include "support/plane_peek.h"

namespace kvarn_test {
namespace {

constexpr uint16_t kHalfMinusInfinity = 0xFC00;
constexpr size_t kGap = 3;  // unused floats after each row of queries and outputs

kvarn_plane_config Config(const AttentionCase& c, bool key) {
  kvarn_plane_config config = {};
  config.format.role = key ? KVARN_KEY : KVARN_VALUE;
  config.format.mode = c.balanced ? KVARN_BALANCED : KVARN_PUBLISHED;
  config.format.order = KVARN_ORDER_CPU;
  config.format.bits = key ? c.key_bits : c.value_bits;
  config.format.group = c.group;
  config.format.head_dim = key ? c.key_dim : c.value_dim;
  config.n_rows = c.n_rows + c.group + 5;
  config.tail_rows = key ? c.key_tail : c.value_tail;
  config.sink_tiles = c.sink_tiles;
  return config;
}

// Strides in floats of [T][H][D] or [H][T][D], rows kGap apart.
void SetStrides(const AttentionCase& c, int dim, size_t* token, size_t* head) {
  const size_t row = static_cast<size_t>(dim) + kGap;
  *head = c.head_major ? row * static_cast<size_t>(c.n_tokens) : row;
  *token = c.head_major ? row : row * static_cast<size_t>(c.n_heads);
}

size_t Index(int stream, int token, int head, const AttentionCase& c) {
  return static_cast<size_t>((stream * c.n_tokens + token) * c.n_heads + head);
}

}  // namespace

std::string Describe(const AttentionCase& c) {
  std::ostringstream text;
  text << "Dk " << c.key_dim << " Dv " << c.value_dim << " heads " << c.n_heads << "/"
       << c.n_kv_heads << " streams " << c.n_streams << " tokens " << c.n_tokens << " rows "
       << c.n_rows << " k" << c.key_bits << "v" << c.value_bits << " g" << c.group
       << (c.balanced ? " balanced" : " published") << " tails " << c.key_tail << "/"
       << c.value_tail << " sink tiles " << c.sink_tiles << " keys " << TileKindName(c.keys)
       << " values " << TileKindName(c.values) << " mask " << static_cast<int>(c.mask)
       << (c.mask_per_head ? " per head" : "") << (c.mask_per_stream ? " per stream" : "")
       << " bias " << c.max_bias << " softcap " << c.softcap << " sinks " << c.sinks
       << " head major " << c.head_major << " sparse " << c.sparse << " outlier " << c.query_outlier
       << " seed " << c.seed;
  return text.str();
}

AttentionSetup::AttentionSetup(const AttentionCase& c)
    : case_(c),
      random_(c.seed),
      key_plane_(MakePlane(Config(c, true))),
      value_plane_(MakePlane(Config(c, false))),
      keys_(kvarn_plane_bytes(key_plane_.get()) * static_cast<size_t>(c.n_streams * c.n_kv_heads)),
      values_(kvarn_plane_bytes(value_plane_.get()) *
              static_cast<size_t>(c.n_streams * c.n_kv_heads)) {
  problem_.n_streams = c.n_streams;
  problem_.n_tokens = c.n_tokens;
  problem_.n_heads = c.n_heads;
  problem_.n_kv_heads = c.n_kv_heads;
  problem_.n_rows = c.n_rows;
  problem_.key_dim = c.key_dim;
  problem_.value_dim = c.value_dim;
  problem_.scale = static_cast<float>(1.0 / std::sqrt(c.key_dim));
  problem_.max_bias = c.max_bias;
  problem_.softcap = c.softcap;
  FillPlanes();
  FillQuery();
  FillMask();
  for (int h = 0; c.sinks && h < c.n_heads; ++h) {
    problem_.sinks.push_back(static_cast<float>(2.0 * random_.Normal()));
  }
}

const uint8_t* AttentionSetup::Keys(int pair) const {
  return keys_.data() + static_cast<size_t>(pair) * kvarn_plane_bytes(key_plane_.get());
}
const uint8_t* AttentionSetup::Values(int pair) const {
  return values_.data() + static_cast<size_t>(pair) * kvarn_plane_bytes(value_plane_.get());
}

void AttentionSetup::FillPlanes() {
  for (int row = 0; row < case_.n_rows; ++row) {
    missing_.push_back(case_.sparse && random_.Chance(0.2));
  }
  for (int pair = 0; pair < case_.n_streams * case_.n_kv_heads; ++pair) {
    for (const bool key : {true, false}) {
      const kvarn_plane* plane = key ? key_plane_.get() : value_plane_.get();
      auto* memory = const_cast<uint8_t*>(key ? Keys(pair) : Values(pair));
      const int dim = key ? case_.key_dim : case_.value_dim;
      PoisonStores(plane, memory, case_.poison);
      const std::vector<float> rows =
          MakeTile(key ? case_.keys : case_.values, &random_, case_.n_rows, dim);
      for (int row = 0; row < case_.n_rows; ++row) {
        if (missing_[static_cast<size_t>(row)]) continue;
        ASSERT_EQ(kvarn_plane_write(plane, memory, row,
                                    rows.data() + static_cast<ptrdiff_t>(row) * dim, nullptr, 0, 0),
                  KVARN_OK);
      }
      (key ? problem_.keys : problem_.values).push_back(PeekRows(plane, memory, case_.n_rows));
    }
  }
}

void AttentionSetup::FillQuery() {
  const AttentionCase& c = case_;
  const auto dim = static_cast<size_t>(c.key_dim);
  SetStrides(c, c.key_dim, &query_token_stride_, &query_head_stride_);
  SetStrides(c, c.value_dim, &out_token_stride_, &out_head_stride_);
  const size_t rows = static_cast<size_t>(c.n_streams * c.n_tokens * c.n_heads);
  query_.assign(rows * (dim + kGap), NAN);
  for (int stream = 0; stream < c.n_streams; ++stream) {
    for (int token = 0; token < c.n_tokens; ++token) {
      for (int head = 0; head < c.n_heads; ++head) {
        const size_t outlier = random_.Next() % dim;
        float* to = query_.data() +
                    static_cast<size_t>(stream * c.n_tokens * c.n_heads) * (dim + kGap) +
                    static_cast<size_t>(token) * query_token_stride_ +
                    static_cast<size_t>(head) * query_head_stride_;
        for (size_t d = 0; d < dim; ++d) {
          to[d] = static_cast<float>(random_.Normal() + (d == outlier ? c.query_outlier : 0.0));
          problem_.query.push_back(to[d]);
        }
      }
    }
  }
}

void AttentionSetup::FillMask() {
  const AttentionCase& c = case_;
  if (c.mask == MaskKind::kNone) return;
  problem_.mask_heads = c.mask_per_head ? (c.n_heads % 2 == 0 ? c.n_heads / 2 : c.n_heads) : 1;
  problem_.mask_streams = c.mask_per_stream ? c.n_streams : 1;
  mask_row_ = static_cast<size_t>(c.n_rows) + 7;  // what lies beyond the rows is not -inf
  for (int line = 0; line < problem_.mask_streams * problem_.mask_heads * c.n_tokens; ++line) {
    const int token = line % c.n_tokens;
    const bool blind = c.mask == MaskKind::kSomeRows && random_.Chance(0.3);
    const int last = std::max(c.n_rows - c.n_tokens + token, 0);  // own row of the token
    const double density = random_.Uniform();
    for (int i = 0; i < c.n_rows; ++i) {
      uint16_t value = 0;
      bool seen = true;
      if (c.mask == MaskKind::kCausal || c.mask == MaskKind::kDistance) seen = i <= last;
      if (c.mask == MaskKind::kWindow) seen = i <= last && i > last - 100;
      if (c.mask == MaskKind::kHoles || c.mask == MaskKind::kSomeRows) {
        seen = random_.Chance(density);
        value = kvarn_reference::HalfFromFloat(static_cast<float>(random_.Normal()), nullptr);
      }
      if (c.mask == MaskKind::kDistance) {
        value = kvarn_reference::HalfFromFloat(static_cast<float>(i - last), nullptr);
      }
      if (!seen || blind || missing_[static_cast<size_t>(i)]) value = kHalfMinusInfinity;
      problem_.mask.push_back(value);
      mask_.push_back(value);
    }
    mask_.resize(mask_.size() + 7, 0);
  }
}

size_t AttentionSetup::OutSize() const {
  return static_cast<size_t>(case_.n_streams * case_.n_tokens * case_.n_heads) *
         (static_cast<size_t>(case_.value_dim) + kGap);
}

kvarn_attention AttentionSetup::Call(float* out) const {
  const AttentionCase& c = case_;
  const size_t key_bytes = kvarn_plane_bytes(key_plane_.get());
  const size_t value_bytes = kvarn_plane_bytes(value_plane_.get());
  const size_t query_row = static_cast<size_t>(c.key_dim) + kGap;
  const size_t out_row = static_cast<size_t>(c.value_dim) + kGap;
  const auto rows = static_cast<size_t>(c.n_tokens * c.n_heads);
  kvarn_attention call = {};
  call.key_plane = key_plane_.get();
  call.value_plane = value_plane_.get();
  call.keys = keys_.data();
  call.values = values_.data();
  call.key_head_stride = key_bytes;
  call.key_stream_stride = key_bytes * static_cast<size_t>(c.n_kv_heads);
  call.value_head_stride = value_bytes;
  call.value_stream_stride = value_bytes * static_cast<size_t>(c.n_kv_heads);
  call.n_streams = c.n_streams;
  call.n_tokens = c.n_tokens;
  call.n_heads = c.n_heads;
  call.n_kv_heads = c.n_kv_heads;
  call.n_rows = c.n_rows;
  call.query = query_.data();
  call.query_token_stride = sizeof(float) * query_token_stride_;
  call.query_head_stride = sizeof(float) * query_head_stride_;
  call.query_stream_stride = sizeof(float) * rows * query_row;
  if (!mask_.empty()) {
    call.mask = mask_.data();
    call.mask_heads = problem_.mask_heads;
    call.mask_streams = problem_.mask_streams;
    call.mask_token_stride = sizeof(uint16_t) * mask_row_;
    call.mask_head_stride = call.mask_token_stride * static_cast<size_t>(c.n_tokens);
    call.mask_stream_stride = call.mask_head_stride * static_cast<size_t>(problem_.mask_heads);
  }
  call.scale = static_cast<float>(problem_.scale);
  call.max_bias = static_cast<float>(c.max_bias);
  call.softcap = static_cast<float>(c.softcap);
  call.sinks = problem_.sinks.empty() ? nullptr : problem_.sinks.data();
  call.out = out;
  call.out_token_stride = sizeof(float) * out_token_stride_;
  call.out_head_stride = sizeof(float) * out_head_stride_;
  call.out_stream_stride = sizeof(float) * rows * out_row;
  return call;
}

std::vector<float> AttentionSetup::Run(int n_threads) const {
  std::vector<float> out(OutSize(), NAN);
  const kvarn_attention call = Call(out.data());
  const size_t bytes = kvarn_attention_workspace_bytes(&call, n_threads);
  EXPECT_GT(bytes, 0U);
  Block workspace(bytes, 0xFF);
  EXPECT_EQ(kvarn_attention_begin(&call, workspace.data(), n_threads), KVARN_OK);
  std::vector<std::thread> threads;
  for (int i = 1; i < n_threads; ++i) {
    threads.emplace_back([&, i] { kvarn_attention_run(&call, workspace.data(), i, n_threads); });
  }
  kvarn_attention_run(&call, workspace.data(), 0, n_threads);
  for (std::thread& thread : threads) thread.join();

  std::vector<float> packed;
  for (int stream = 0; stream < case_.n_streams; ++stream) {
    for (int token = 0; token < case_.n_tokens; ++token) {
      for (int head = 0; head < case_.n_heads; ++head) {
        const size_t at =
            Index(stream, 0, 0, case_) * (static_cast<size_t>(case_.value_dim) + kGap) +
            static_cast<size_t>(token) * out_token_stride_ +
            static_cast<size_t>(head) * out_head_stride_;
        const auto from = out.begin() + static_cast<ptrdiff_t>(at);
        packed.insert(packed.end(), from, from + case_.value_dim);
        for (size_t i = 0; i < kGap; ++i) {
          EXPECT_TRUE(std::isnan(from[case_.value_dim + static_cast<ptrdiff_t>(i)]))
              << "written between two rows";
        }
      }
    }
  }
  return packed;
}

}  // namespace kvarn_test
