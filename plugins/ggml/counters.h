// SPDX-License-Identifier: Apache-2.0
//
// What the plug-in did in this process; printed now and then while graphs run and when a KV buffer
// is freed, so that one can tell a run through kvarn from one that passed it by.
#ifndef KVARN_PLUGINS_GGML_COUNTERS_H_
#define KVARN_PLUGINS_GGML_COUNTERS_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "kvarn/kvarn.h"

namespace kvarn::ggml_plugin {

struct Counters {
  std::atomic<uint64_t> attention_calls{0};  // FLASH_ATTN_EXT nodes run on planes
  std::atomic<uint64_t> generic_nodes{0};    // nodes run on a materialised F16 copy
};

extern Counters counters;

// Counters and the sum over the planes of interest as one line of text.
std::string Describe(const kvarn_plane_stats& total);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_COUNTERS_H_
