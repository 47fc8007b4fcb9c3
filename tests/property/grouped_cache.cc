// SPDX-License-Identifier: Apache-2.0
#include "property/grouped_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

namespace kvarn_test {
namespace {

constexpr uint16_t kHalfMinusInfinity = 0xFC00;
constexpr int kShares = 2;

kvarn_plane_config Config(const GroupedShape& shape, bool key) {
  kvarn_plane_config config = {};
  config.format.role = key ? KVARN_KEY : KVARN_VALUE;
  config.format.mode = KVARN_BALANCED;
  config.format.order = KVARN_ORDER_CPU;
  config.format.bits = key ? shape.key_bits : shape.value_bits;
  config.format.group = shape.group;
  config.format.head_dim = key ? shape.key_dim : shape.value_dim;
  config.n_rows = shape.n_rows;
  config.tail_rows = key ? shape.key_tail : shape.value_tail;
  config.sink_tiles = shape.sink_tiles;
  return config;
}

size_t Planes(const GroupedShape& shape) {
  return static_cast<size_t>(shape.n_streams * shape.n_kv_heads);
}

std::vector<float> Normals(size_t n, Random* random) {
  std::vector<float> x;
  for (size_t i = 0; i < n; ++i) x.push_back(static_cast<float>(random->Normal()));
  return x;
}

double Norm(const float* x, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

uint64_t Seals(const kvarn_plane* plane, const uint8_t* memory) {
  kvarn_plane_stats stats = {};
  EXPECT_EQ(kvarn_plane_get_stats(plane, memory, &stats), KVARN_OK);
  return stats.seals;
}

}  // namespace

std::string Describe(const GroupedShape& s) {
  std::ostringstream text;
  text << "k" << s.key_bits << "v" << s.value_bits << " g" << s.group << " Dk " << s.key_dim
       << " Dv " << s.value_dim << " streams " << s.n_streams << " heads " << s.n_heads << "/"
       << s.n_kv_heads << " rows " << s.n_rows << " tails " << s.key_tail << "/" << s.value_tail
       << " sink tiles " << s.sink_tiles;
  return text.str();
}

TokenData RandomTokens(const GroupedShape& shape, int n_tokens, Random* random) {
  const auto tokens = static_cast<size_t>(shape.n_streams * n_tokens);
  const auto size = [&](int heads, int dim) { return tokens * static_cast<size_t>(heads * dim); };
  TokenData data;
  data.keys = Normals(size(shape.n_kv_heads, shape.key_dim), random);
  data.values = Normals(size(shape.n_kv_heads, shape.value_dim), random);
  data.query = Normals(size(shape.n_heads, shape.key_dim), random);
  return data;
}

GroupedCache::GroupedCache(const GroupedShape& shape, int room)
    : shape_(shape),
      room_(room),
      key_plane_(MakePlane(Config(shape, true))),
      value_plane_(MakePlane(Config(shape, false))),
      keys_(kvarn_plane_bytes(key_plane_.get()) * Planes(shape)),
      values_(kvarn_plane_bytes(value_plane_.get()) * Planes(shape)),
      // Whatever lies in a block before it is begun must not matter.
      key_recent_(kvarn_recent_bytes(key_plane_.get(), room) * Planes(shape), 0xFF),
      value_recent_(kvarn_recent_bytes(value_plane_.get(), room) * Planes(shape), 0xFF) {}

double GroupedCache::Scale() const { return 1.0 / std::sqrt(shape_.key_dim); }

uint8_t* GroupedCache::Plane(bool key, int stream, int head) {
  const kvarn_plane* plane = key ? key_plane_.get() : value_plane_.get();
  const auto index = static_cast<size_t>(stream * shape_.n_kv_heads + head);
  return (key ? keys_ : values_).data() + index * kvarn_plane_bytes(plane);
}

uint8_t* GroupedCache::Recent(bool key, int stream, int head) {
  const kvarn_plane* plane = key ? key_plane_.get() : value_plane_.get();
  const auto index = static_cast<size_t>(stream * shape_.n_kv_heads + head);
  return (key ? key_recent_ : value_recent_).data() + index * kvarn_recent_bytes(plane, room_);
}

void GroupedCache::Write(const GroupedCall& call, const TokenData& data, int stream, int token,
                         bool keep) {
  const size_t at = Token(stream, token, call.n_tokens);
  const int per_kv = shape_.n_heads / shape_.n_kv_heads;
  for (int head = 0; head < shape_.n_kv_heads; ++head) {
    const auto pair = static_cast<ptrdiff_t>(at) * shape_.n_kv_heads + head;
    const float* query = data.query.data() + pair * per_kv * shape_.key_dim;
    for (const bool key : {true, false}) {
      const kvarn_plane* plane = key ? key_plane_.get() : value_plane_.get();
      const float* x = key ? data.keys.data() + pair * shape_.key_dim
                           : data.values.data() + pair * shape_.value_dim;
      uint8_t* memory = Plane(key, stream, head);
      const uint64_t before = Seals(plane, memory);
      ASSERT_EQ(kvarn_plane_write_recent(
                    plane, memory, call.rows[at], x, key ? query : nullptr, per_kv,
                    sizeof(float) * static_cast<size_t>(shape_.key_dim),
                    keep ? Recent(key, stream, head) : nullptr, static_cast<int64_t>(at)),
                KVARN_OK);
      if (token > 0) copies_used_ += static_cast<int>(Seals(plane, memory) - before);
      if (key) {
        largest_key_ = std::max(largest_key_, Norm(x, shape_.key_dim));
      } else {
        for (int d = 0; d < shape_.value_dim; ++d) {
          largest_value_ = std::max(largest_value_, std::fabs(static_cast<double>(x[d])));
        }
      }
    }
    for (int h = 0; h < per_kv; ++h) {
      largest_query_ = std::max(
          largest_query_, Norm(query + static_cast<ptrdiff_t>(h) * shape_.key_dim, shape_.key_dim));
    }
  }
}

void GroupedCache::Attend(const GroupedCall& c, const TokenData& data, int first, int n, bool kept,
                          std::vector<float>* out) {
  const auto n_rows = static_cast<size_t>(shape_.n_rows);
  std::vector<uint16_t> mask;
  for (int stream = 0; stream < shape_.n_streams; ++stream) {
    for (int token = first; token < first + n; ++token) {
      const size_t line = Token(stream, token, c.n_tokens) * n_rows;
      for (size_t row = 0; row < n_rows; ++row) {
        mask.push_back(c.visible[line + row] ? uint16_t{0} : kHalfMinusInfinity);
      }
    }
  }
  const auto heads = static_cast<size_t>(shape_.n_heads);
  const size_t query_row = heads * static_cast<size_t>(shape_.key_dim);
  const size_t out_row = heads * static_cast<size_t>(shape_.value_dim);
  const auto tokens = static_cast<size_t>(c.n_tokens);
  const auto skip = static_cast<size_t>(first);
  kvarn_attention call = {};
  call.key_plane = key_plane_.get();
  call.value_plane = value_plane_.get();
  call.keys = keys_.data();
  call.values = values_.data();
  call.key_head_stride = kvarn_plane_bytes(key_plane_.get());
  call.key_stream_stride = call.key_head_stride * static_cast<size_t>(shape_.n_kv_heads);
  call.value_head_stride = kvarn_plane_bytes(value_plane_.get());
  call.value_stream_stride = call.value_head_stride * static_cast<size_t>(shape_.n_kv_heads);
  call.n_streams = shape_.n_streams;
  call.n_tokens = n;
  call.n_heads = shape_.n_heads;
  call.n_kv_heads = shape_.n_kv_heads;
  call.n_rows = shape_.n_rows;
  call.query = data.query.data() + skip * query_row;
  call.query_head_stride = sizeof(float) * static_cast<size_t>(shape_.key_dim);
  call.query_token_stride = sizeof(float) * query_row;
  call.query_stream_stride = call.query_token_stride * tokens;
  call.mask = mask.data();
  call.mask_heads = 1;
  call.mask_streams = shape_.n_streams;
  call.mask_token_stride = sizeof(uint16_t) * n_rows;
  call.mask_stream_stride = call.mask_token_stride * static_cast<size_t>(n);
  call.scale = static_cast<float>(Scale());
  call.out = out->data() + skip * out_row;
  call.out_head_stride = sizeof(float) * static_cast<size_t>(shape_.value_dim);
  call.out_token_stride = sizeof(float) * out_row;
  call.out_stream_stride = call.out_token_stride * tokens;
  if (kept) {
    call.key_recent = key_recent_.data();
    call.key_recent_head_stride = kvarn_recent_bytes(key_plane_.get(), room_);
    call.key_recent_stream_stride =
        call.key_recent_head_stride * static_cast<size_t>(shape_.n_kv_heads);
    call.value_recent = value_recent_.data();
    call.value_recent_head_stride = kvarn_recent_bytes(value_plane_.get(), room_);
    call.value_recent_stream_stride =
        call.value_recent_head_stride * static_cast<size_t>(shape_.n_kv_heads);
  }
  Block workspace(kvarn_attention_workspace_bytes(&call, kShares), 0xFF);
  ASSERT_EQ(kvarn_attention_begin(&call, workspace.data(), kShares), KVARN_OK);
  for (int share = 0; share < kShares; ++share) {
    kvarn_attention_run(&call, workspace.data(), share, kShares);
  }
}

std::vector<float> GroupedCache::Run(const GroupedCall& call, const TokenData& data) {
  const bool keep = room_ != kNoBlock;
  for (int stream = 0; stream < shape_.n_streams && keep; ++stream) {
    for (int head = 0; head < shape_.n_kv_heads; ++head) {
      for (const bool key : {true, false}) {
        const kvarn_plane* plane = key ? key_plane_.get() : value_plane_.get();
        EXPECT_EQ(kvarn_recent_begin(plane, Recent(key, stream, head), room_), KVARN_OK);
      }
    }
  }
  for (int stream = 0; stream < shape_.n_streams; ++stream) {
    for (int token = 0; token < call.n_tokens; ++token) Write(call, data, stream, token, keep);
  }
  std::vector<float> out(static_cast<size_t>(shape_.n_streams * call.n_tokens * shape_.n_heads) *
                         static_cast<size_t>(shape_.value_dim));
  Attend(call, data, 0, call.n_tokens, keep, &out);
  return out;
}

std::vector<float> GroupedCache::RunOneByOne(const GroupedCall& call, const TokenData& data) {
  std::vector<float> out(static_cast<size_t>(shape_.n_streams * call.n_tokens * shape_.n_heads) *
                         static_cast<size_t>(shape_.value_dim));
  for (int token = 0; token < call.n_tokens; ++token) {
    for (int stream = 0; stream < shape_.n_streams; ++stream) {
      Write(call, data, stream, token, false);
    }
    Attend(call, data, token, 1, false, &out);
  }
  return out;
}

bool GroupedCache::SameBytes(const GroupedCache& other) const {
  return std::memcmp(keys_.data(), other.keys_.data(), keys_.size()) == 0 &&
         std::memcmp(values_.data(), other.values_.data(), values_.size()) == 0;
}

}  // namespace kvarn_test
