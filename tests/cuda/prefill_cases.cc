// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "attention_setup.h"

namespace kvarn_cuda_test {
namespace {

// `chunks` query tokens of each sequence after `before` rows.
void SetTokens(const std::vector<int>& before, const std::vector<int>& chunks, AttentionCase* c) {
  c->chunks = chunks;
  c->lengths.clear();
  for (size_t i = 0; i < chunks.size(); ++i) c->lengths.push_back(before[i] + chunks[i]);
}

// Tiles in any state, and a mask that alone says who sees what: as many query tokens for each
// sequence, anywhere.
std::vector<AttentionCase> TableCases() {
  std::vector<AttentionCase> cases;
  const auto add = [&](int n_tokens, auto change) {
    AttentionCase c;
    c.heads_per_kv = 4;
    c.tile_table = c.planes = c.mask = c.mask_map = c.float_queries = true;
    c.lengths = {1000, 0, 129, 3001, 64, 700};
    change(c);
    c.chunks.assign(c.lengths.size(), n_tokens);
    cases.push_back(c);
  };
  for (const int n_tokens : {1, 33, 110, 200}) {  // the last two decode ahead, where they can
    for (const bool map : {false, true}) {
      for (const bool floats : {false, true}) {
        add(n_tokens, [&](AttentionCase& c) { c.mask_map = map, c.float_queries = floats; });
      }
    }
    add(n_tokens, [](AttentionCase& c) { c.planes = false; });
    add(n_tokens, [](AttentionCase& c) { c.lengths = {1024, 129, 648}; });  // rows of 16 bytes
    add(n_tokens, [](AttentionCase& c) { c.softcap = 20.0F, c.sink_logits = true; });
    add(n_tokens, [](AttentionCase& c) { c.max_bias = 4.0F; });
    add(n_tokens, [](AttentionCase& c) { c.balance_changes = true; });
    add(n_tokens, [](AttentionCase& c) { c.dtype = KVARN_BF16, c.float_queries = false; });
    for (const int gqa : {1, 3, 16}) {
      add(n_tokens, [&](AttentionCase& c) { c.heads_per_kv = gqa; });
    }
    for (const int dim : {64, 128, 256}) {
      for (const int group : {64, 128}) {
        add(n_tokens, [&](AttentionCase& c) {
          c.key_dim = c.value_dim = dim, c.group = group, c.value_bits = 4;
          if (group == 64) c.lengths = {1024, 129, 648}, c.max_bias = 4.0F;
        });
      }
    }
  }
  for (const int bits : {2, 3, 8}) {
    for (const int n_tokens : {33, 110}) {
      add(n_tokens, [&](AttentionCase& c) { c.key_bits = c.value_bits = bits; });
    }
  }
  for (const int n_tokens : {20, 120}) {
    add(n_tokens, [](AttentionCase& c) { c.lengths = {100000}, c.n_kv_heads = 1; });
    add(n_tokens, [](AttentionCase& c) { c.lengths = {128, 90001}; });
  }
  return cases;
}

}  // namespace

std::vector<AttentionCase> PrefillCases() {
  std::vector<AttentionCase> cases;
  const auto add = [&](const std::vector<int>& before, const std::vector<int>& chunks,
                       auto change) {
    AttentionCase c;
    c.heads_per_kv = 4;
    SetTokens(before, chunks, &c);
    change(c);
    cases.push_back(c);
  };
  const auto nothing = [](AttentionCase&) {};
  // Chunk sizes, from nothing and behind a context.
  for (const int chunk : {1, 7, 64, 129, 512}) {
    add({0}, {chunk}, nothing);
    add({1000}, {chunk}, nothing);
  }
  // A chunk at every kind of place around tile borders.
  for (const int before : {127, 128, 129, 255, 256, 257, 383, 384, 385, 450}) {
    for (const int lag : {-1, 0, 128}) {
      add({before, before + 1}, {200, 130}, [&](AttentionCase& c) { c.seal_lag = lag; });
    }
  }
  const std::vector<int> before = {0, 300, 1, 128, 640, 1500, 255, 31};
  const std::vector<int> ragged = {33, 1, 256, 129, 0, 300, 2, 97};
  for (const kvarn_dtype dtype : {KVARN_FP16, KVARN_BF16}) {
    for (const int lag : {-1, 0, 128}) {
      for (const bool sink : {true, false}) {
        add(before, ragged,
            [&](AttentionCase& c) { c.dtype = dtype, c.seal_lag = lag, c.sink = sink; });
      }
    }
  }
  for (const int gqa : {1, 2, 3, 5, 6, 8, 16}) {
    add(before, ragged, [&](AttentionCase& c) { c.heads_per_kv = gqa, c.seal_lag = 128; });
  }
  for (const int heads : {1, 3, 8}) {
    add({500, 40}, {100, 200}, [&](AttentionCase& c) { c.n_kv_heads = heads; });
  }
  for (const int k : {2, 3, 4, 8}) {
    for (const int v : {2, 3, 4, 8}) {
      add({700, 300}, {150, 20},
          [&](AttentionCase& c) { c.key_bits = k, c.value_bits = v, c.seal_lag = 0; });
    }
  }
  for (const int dim : {64, 80, 96, 112, 128, 192, 256}) {
    for (const int group : {64, 128}) {
      for (const int bits : {2, 3, 4, 8}) {
        add({0, 600, 257, 64}, {70, 100, 1, 200}, [&](AttentionCase& c) {
          c.key_dim = c.value_dim = dim, c.group = group, c.seal_lag = 0;
          c.key_bits = bits, c.value_bits = bits == 4 ? 2 : bits;
          c.dtype = bits == 3 ? KVARN_BF16 : KVARN_FP16;
        });
      }
    }
  }
  for (const int lag : {-1, 128}) {
    add(before, ragged,
        [&](AttentionCase& c) { c.key_dim = 192, c.value_dim = 128, c.seal_lag = lag; });
  }
  for (const int lag : {-1, 0}) {
    const auto option = [&](auto change) {
      add(before, ragged, [&](AttentionCase& c) { c.seal_lag = lag, change(c); });
    };
    option([](AttentionCase& c) { c.softcap = 5.0F; });
    option([](AttentionCase& c) { c.window = 333; });
    option([](AttentionCase& c) { c.window = 5; });
    option([](AttentionCase& c) { c.max_bias = 8.0F, c.heads_per_kv = 6; });
    option([](AttentionCase& c) { c.sink_logits = true; });
    option([](AttentionCase& c) { c.mask = true, c.heads_per_kv = 3; });
    option([](AttentionCase& c) { c.mask = true, c.max_bias = 4.0F; });
    option([](AttentionCase& c) {
      c.softcap = 20.0F, c.window = 200, c.sink_logits = true, c.dtype = KVARN_BF16;
    });
    option([](AttentionCase& c) { c.balance_changes = true; });
  }
  for (AttentionCase& c : TableCases()) cases.push_back(std::move(c));
  for (const float gain : {1e-3F, 50.0F}) {
    add(before, ragged, [&](AttentionCase& c) { c.key_gain = gain; });
    add(before, ragged, [&](AttentionCase& c) { c.value_gain = gain; });
  }
  return cases;
}

}  // namespace kvarn_cuda_test
