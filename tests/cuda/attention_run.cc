// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "attention_setup.h"

namespace kvarn_cuda_test {

std::string AttentionCase::Name() const {
  std::string name = "k" + std::to_string(key_bits) + "v" + std::to_string(value_bits) + "_g" +
                     std::to_string(group) + " d" + std::to_string(key_dim);
  if (value_dim != key_dim) name += "/" + std::to_string(value_dim);
  name += " gqa" + std::to_string(heads_per_kv) + "x" + std::to_string(n_kv_heads) +
          (chunks.empty() ? " w" + std::to_string(n_tokens)
                          : " chunk" + std::to_string(chunks.front()) + "@" +
                                std::to_string(lengths.front() - chunks.front())) +
          " n" + std::to_string(lengths.size());
  if (seal_lag >= 0) name += " lag" + std::to_string(seal_lag);
  if (dtype == KVARN_BF16) name += " bf16";
  if (!sink) name += " no-sink";
  if (softcap > 0) name += " softcap";
  if (window > 0) name += " window";
  if (max_bias > 0) name += " alibi";
  if (sink_logits) name += " sink-logits";
  if (mask) name += " mask";
  if (mask_map) name += " mask-map";
  if (tile_table) name += planes ? " tile-table planes" : " tile-table";
  if (float_queries) name += " fp32";
  if (spare_table) name += " long-tables";
  if (key_gain != 1.0F) name += key_gain < 1.0F ? " tiny-k" : " huge-k";
  if (value_gain != 1.0F) name += value_gain < 1.0F ? " tiny-v" : " huge-v";
  if (balance_changes) name += " balance-changes";
  return name;
}

namespace {

// Cases whose options a machine's build lacks are counted, not hidden.
enum class Outcome { kPassed, kFailed, kNotCompiled };

Outcome RunCase(const AttentionCase& c) {
  AttentionSetup setup(c);
  const kvarn_status status = setup.Run();
  if (status == KVARN_ERROR_UNSUPPORTED) {
    std::printf("%-58s not compiled in\n", c.Name().c_str());
    return Outcome::kNotCompiled;
  }
  if (status != KVARN_OK) {
    std::printf("%-58s FAILED: %s\n", c.Name().c_str(), kvarn_status_text(status));
    return Outcome::kFailed;
  }
  const Errors errors = setup.Compare();
  const bool ok = errors.worst_share <= 1.0 && setup.RepeatsExactly();
  std::printf("%-58s error %.1e of the output, %3.0f %% of the bound%s\n", c.Name().c_str(),
              errors.worst_relative, errors.worst_share * 100.0, ok ? "" : "  FAILED");
  return ok ? Outcome::kPassed : Outcome::kFailed;
}

}  // namespace

int RunCases(const std::vector<AttentionCase>& cases, const char* part) {
  if (!HasDevice()) {
    std::printf("skipped: no CUDA device on this machine\n");
    return 77;
  }
  int count[3] = {};
  for (const AttentionCase& c : cases) {
    if (part != nullptr && c.Name().find(part) == std::string::npos) continue;
    count[static_cast<int>(RunCase(c))] += 1;
  }
  std::printf("%d passed, %d failed, %d not compiled in\n", count[0], count[1], count[2]);
  return count[1] == 0 && count[0] > 0 ? 0 : 1;
}

}  // namespace kvarn_cuda_test
