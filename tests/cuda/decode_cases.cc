// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "attention_setup.h"

namespace kvarn_cuda_test {

std::vector<AttentionCase> DecodeCases() {
  std::vector<AttentionCase> cases;
  const std::vector<int> ragged = {1, 31, 128, 129, 300, 700, 1500, 257, 0, 4000};
  const auto add = [&](auto change) {
    AttentionCase c;
    change(c);
    cases.push_back(c);
  };
  add([](AttentionCase&) {});
  for (const kvarn_dtype dtype : {KVARN_FP16, KVARN_BF16}) {
    add([&](AttentionCase& c) { c.dtype = dtype, c.lengths = ragged; });
    add([&](AttentionCase& c) { c.dtype = dtype, c.lengths = ragged, c.sink = false; });
    add([&](AttentionCase& c) { c.dtype = dtype, c.lengths = {2000}, c.n_kv_heads = 8; });
  }
  for (const int heads : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16}) {
    add([&](AttentionCase& c) { c.n_kv_heads = heads, c.lengths = {900, 2300, 64}; });
  }
  for (const int gqa : {1, 2, 3, 4, 5, 6, 7, 12, 16}) {
    add([&](AttentionCase& c) { c.heads_per_kv = gqa, c.lengths = ragged; });
  }
  for (const int width : {2, 3, 4, 8}) {
    for (const int gqa : {1, 2, 4, 8}) {
      add([&](AttentionCase& c) {
        c.n_tokens = width, c.heads_per_kv = gqa, c.lengths = {9, 400, 1300};
      });
    }
  }
  for (const int k : {2, 3, 4, 8}) {
    for (const int v : {2, 3, 4, 8}) {
      for (const int dim : {64, 128, 256}) {
        add([&](AttentionCase& c) {
          c.key_bits = k, c.value_bits = v, c.key_dim = c.value_dim = dim;
          c.lengths = {1100, 500};
        });
      }
    }
  }
  for (const int dim : {64, 80, 96, 112, 192, 256}) {
    for (const int group : {64, 128}) {
      add([&](AttentionCase& c) {
        c.key_dim = c.value_dim = dim, c.group = group, c.lengths = ragged;
        c.dtype = group == 64 ? KVARN_BF16 : KVARN_FP16;
      });
    }
  }
  // Many query rows: a warpgroup a record.
  for (const auto& [k, v] : {std::pair{4, 2}, {2, 2}, {3, 3}, {8, 8}}) {
    for (const int dim : {64, 128, 256}) {
      for (const int group : {64, 128}) {
        add([&, k = k, v = v](AttentionCase& c) {
          c.key_bits = k, c.value_bits = v, c.key_dim = c.value_dim = dim, c.group = group;
          c.n_tokens = 4, c.lengths = ragged, c.n_kv_heads = 8;
        });
      }
    }
  }
  for (const int width : {2, 3, 4, 8}) {
    add([&](AttentionCase& c) {
      c.n_tokens = width, c.lengths = ragged, c.dtype = KVARN_BF16, c.balance_changes = true;
    });
    add([&](AttentionCase& c) {
      c.n_tokens = width, c.lengths = ragged, c.softcap = 20.0F, c.window = 200, c.max_bias = 8.0F;
    });
    for (const float gain : {1e-3F, 50.0F}) {
      add([&](AttentionCase& c) {
        c.n_tokens = width, c.key_gain = gain, c.lengths = {900, 2300};
      });
    }
  }
  add([&](AttentionCase& c) { c.n_tokens = 4, c.mask = true, c.lengths = ragged; });
  add([&](AttentionCase& c) {
    c.n_tokens = 4, c.key_dim = 192, c.value_dim = 128, c.lengths = ragged;
  });
  add([&](AttentionCase& c) { c.key_dim = 192, c.value_dim = 128, c.lengths = ragged; });
  add([&](AttentionCase& c) { c.group = 64, c.lengths = ragged; });
  for (const int width : {1, 2, 4}) {
    add([&](AttentionCase& c) {
      c.tile_table = c.mask = true, c.n_tokens = width, c.lengths = ragged;
    });
  }
  for (const bool map : {false, true}) {
    for (const bool floats : {false, true}) {
      for (const int width : {1, 2, 4, 20}) {
        add([&](AttentionCase& c) {
          c.tile_table = c.planes = c.mask = true, c.mask_map = map, c.float_queries = floats;
          c.n_tokens = width, c.lengths = ragged;
          if (width == 20) c.heads_per_kv = 3;  // 60 query rows, two rows of the map
        });
      }
    }
  }
  const auto planes = [&](auto change) {
    add([&](AttentionCase& c) {
      c.tile_table = c.planes = c.mask = c.mask_map = c.float_queries = true, c.lengths = ragged;
      change(c);
    });
  };
  planes([](AttentionCase& c) { c.lengths = {100000}, c.n_kv_heads = 1; });
  planes([](AttentionCase& c) { c.softcap = 20.0F, c.sink_logits = true; });
  planes([](AttentionCase& c) { c.max_bias = 4.0F, c.n_tokens = 2; });
  planes([](AttentionCase& c) { c.key_dim = c.value_dim = 64, c.n_tokens = 2; });
  planes([](AttentionCase& c) { c.key_dim = c.value_dim = 64, c.group = 64, c.n_tokens = 4; });
  planes([](AttentionCase& c) { c.key_dim = c.value_dim = 96, c.group = 64; });
  planes([](AttentionCase& c) { c.key_dim = c.value_dim = 256; });
  planes([](AttentionCase& c) { c.balance_changes = true, c.n_tokens = 2; });
  add([](AttentionCase& c) { c.tile_table = c.planes = true, c.lengths = {600, 500}; });
  add([](AttentionCase& c) {
    c.tile_table = c.mask = true, c.max_bias = 4.0F, c.lengths = {140000}, c.n_kv_heads = 1;
  });
  add([&](AttentionCase& c) { c.tile_table = true, c.lengths = ragged, c.softcap = 20.0F; });
  add([&](AttentionCase& c) { c.softcap = 5.0F, c.lengths = ragged; });
  add([&](AttentionCase& c) { c.window = 333, c.lengths = ragged; });
  add([&](AttentionCase& c) { c.max_bias = 8.0F, c.lengths = ragged, c.heads_per_kv = 6; });
  add([&](AttentionCase& c) { c.sink_logits = true, c.lengths = ragged; });
  add([&](AttentionCase& c) {
    c.mask = true, c.lengths = ragged, c.n_tokens = 2, c.heads_per_kv = 4;
  });
  add([&](AttentionCase& c) { c.mask = true, c.max_bias = 4.0F, c.lengths = ragged; });
  add([&](AttentionCase& c) {
    c.softcap = 20.0F, c.window = 200, c.sink_logits = true, c.n_tokens = 2, c.lengths = ragged;
  });
  for (const float gain : {1e-3F, 50.0F}) {
    add([&](AttentionCase& c) { c.key_gain = gain, c.lengths = ragged; });
    add([&](AttentionCase& c) { c.value_gain = gain, c.lengths = ragged; });
  }
  add([&](AttentionCase& c) { c.balance_changes = true, c.lengths = ragged; });
  // Clusters do most of the calls above that have few query rows; here the other kernel does some.
  for (size_t i = 0, n = cases.size(); i < n; i += 2) {
    AttentionCase c = cases[i];
    if (c.heads_per_kv * c.n_tokens > 8 || c.n_kv_heads > 8) continue;
    c.spare_table = true;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace kvarn_cuda_test
