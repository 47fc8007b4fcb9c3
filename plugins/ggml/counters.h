// SPDX-License-Identifier: Apache-2.0
//
// What the plug-in did in this process; printed when a KV buffer is freed, so that a test can tell
// a run through kvarn from one that passed it by.
#ifndef KVARN_PLUGINS_GGML_COUNTERS_H_
#define KVARN_PLUGINS_GGML_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace kvarn::ggml_plugin {

struct Counters {
  std::atomic<uint64_t> attention_calls{0};  // FLASH_ATTN_EXT nodes run on planes
  std::atomic<uint64_t> generic_nodes{0};    // nodes run on a materialised F16 copy
};

extern Counters counters;

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_COUNTERS_H_
