// SPDX-License-Identifier: Apache-2.0
#include "decode_setup.h"

namespace kvarn_cuda_test {

std::string DecodeCase::Name() const {
  std::string name = "k" + std::to_string(key_bits) + "v" + std::to_string(value_bits) + "_g" +
                     std::to_string(group) + " d" + std::to_string(key_dim);
  if (value_dim != key_dim) name += "/" + std::to_string(value_dim);
  name += " gqa" + std::to_string(heads_per_kv) + "x" + std::to_string(n_kv_heads) + " w" +
          std::to_string(n_tokens) + " n" + std::to_string(lengths.size());
  if (dtype == KVARN_BF16) name += " bf16";
  if (!sink) name += " no-sink";
  if (softcap > 0) name += " softcap";
  if (window > 0) name += " window";
  if (max_bias > 0) name += " alibi";
  if (sink_logits) name += " sink-logits";
  if (mask) name += " mask";
  if (key_gain != 1.0F) name += key_gain < 1.0F ? " tiny-k" : " huge-k";
  if (value_gain != 1.0F) name += value_gain < 1.0F ? " tiny-v" : " huge-v";
  if (balance_changes) name += " balance-changes";
  return name;
}

std::vector<DecodeCase> DecodeCases() {
  std::vector<DecodeCase> cases;
  const std::vector<int> ragged = {1, 31, 128, 129, 300, 700, 1500, 257, 0, 4000};
  const auto add = [&](auto change) {
    DecodeCase c;
    change(c);
    cases.push_back(c);
  };
  add([](DecodeCase&) {});
  for (const kvarn_dtype dtype : {KVARN_FP16, KVARN_BF16}) {
    add([&](DecodeCase& c) { c.dtype = dtype, c.lengths = ragged; });
    add([&](DecodeCase& c) { c.dtype = dtype, c.lengths = ragged, c.sink = false; });
    add([&](DecodeCase& c) { c.dtype = dtype, c.lengths = {2000}, c.n_kv_heads = 8; });
  }
  for (const int heads : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16}) {
    add([&](DecodeCase& c) { c.n_kv_heads = heads, c.lengths = {900, 2300, 64}; });
  }
  for (const int gqa : {1, 2, 3, 4, 5, 6, 7, 12, 16}) {
    add([&](DecodeCase& c) { c.heads_per_kv = gqa, c.lengths = ragged; });
  }
  for (const int width : {2, 3, 4, 8}) {
    for (const int gqa : {1, 2, 4, 8}) {
      add([&](DecodeCase& c) {
        c.n_tokens = width, c.heads_per_kv = gqa, c.lengths = {9, 400, 1300};
      });
    }
  }
  for (const int k : {2, 3, 4, 8}) {
    for (const int v : {2, 3, 4, 8}) {
      for (const int dim : {64, 128, 256}) {
        add([&](DecodeCase& c) {
          c.key_bits = k, c.value_bits = v, c.key_dim = c.value_dim = dim;
          c.lengths = {1100, 500};
        });
      }
    }
  }
  for (const int dim : {64, 80, 96, 112, 192, 256}) {
    for (const int group : {64, 128}) {
      add([&](DecodeCase& c) {
        c.key_dim = c.value_dim = dim, c.group = group, c.lengths = ragged;
        c.dtype = group == 64 ? KVARN_BF16 : KVARN_FP16;
      });
    }
  }
  add([&](DecodeCase& c) { c.key_dim = 192, c.value_dim = 128, c.lengths = ragged; });
  add([&](DecodeCase& c) { c.group = 64, c.lengths = ragged; });
  add([&](DecodeCase& c) { c.softcap = 5.0F, c.lengths = ragged; });
  add([&](DecodeCase& c) { c.window = 333, c.lengths = ragged; });
  add([&](DecodeCase& c) { c.max_bias = 8.0F, c.lengths = ragged, c.heads_per_kv = 6; });
  add([&](DecodeCase& c) { c.sink_logits = true, c.lengths = ragged; });
  add([&](DecodeCase& c) {
    c.mask = true, c.lengths = ragged, c.n_tokens = 2, c.heads_per_kv = 4;
  });
  add([&](DecodeCase& c) { c.mask = true, c.max_bias = 4.0F, c.lengths = ragged; });
  add([&](DecodeCase& c) {
    c.softcap = 20.0F, c.window = 200, c.sink_logits = true, c.n_tokens = 2, c.lengths = ragged;
  });
  for (const float gain : {1e-3F, 50.0F}) {
    add([&](DecodeCase& c) { c.key_gain = gain, c.lengths = ragged; });
    add([&](DecodeCase& c) { c.value_gain = gain, c.lengths = ragged; });
  }
  add([&](DecodeCase& c) { c.balance_changes = true, c.lengths = ragged; });
  return cases;
}

}  // namespace kvarn_cuda_test
