// SPDX-License-Identifier: Apache-2.0
#include "counters.h"

#include <cinttypes>
#include <cstdio>

namespace kvarn::ggml_plugin {

Counters counters;

std::string Describe(const kvarn_plane_stats& total) {
  char text[512];
  std::snprintf(text, sizeof(text),
                "rows written %" PRIu64 ", tiles sealed %" PRIu64 " (reopened %" PRIu64
                "), now %" PRId64 " sealed and %" PRId64 " exact, attention calls %" PRIu64
                ", generic nodes %" PRIu64 ", rows zeroed %" PRIu64 ", values saturated %" PRIu64,
                total.rows_written, total.seals, total.reopens, total.tiles_sealed,
                total.tiles_open, counters.attention_calls.load(), counters.generic_nodes.load(),
                total.counts.rows_zeroed, total.counts.values_saturated);
  return text;
}

}  // namespace kvarn::ggml_plugin
