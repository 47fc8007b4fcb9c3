// SPDX-License-Identifier: Apache-2.0
//
// Settings of the plug-in. The only file that reads the environment is config.cpp; the variables,
// their meaning and their defaults are listed in README.md.
#ifndef KVARN_PLUGINS_GGML_CONFIG_H_
#define KVARN_PLUGINS_GGML_CONFIG_H_

#include <string>

#include "kvarn/kvarn.h"

namespace kvarn::ggml_plugin {

enum class Sliding { kAuto, kOn, kOff };

struct Config {
  std::string preset = "kvarn_k4v2_g128";  // KVARN_PRESET: of the device named "kvarn"
  kvarn_mode mode = KVARN_BALANCED;        // KVARN_MODE
  int tail_rows = -1;                      // KVARN_TAIL; -1 = one tile
  int sink_tokens = -1;                    // KVARN_SINK; -1 = one tile
  Sliding sliding = Sliding::kAuto;        // KVARN_SLIDING
  std::string isa;                         // KVARN_ISA; empty = the best one
  bool cuda_graphs = true;                 // GGML_CUDA_DISABLE_GRAPHS, the host's own: off if set
};

// Read and check the environment; false fills `error` with one sentence that names the variable,
// the value given and the values allowed.
bool ReadConfig(Config* config, std::string* error);

// GGML_CUDA_GRAPH_OPT, the host's own: its CUDA backend reorders the graphs that it may optimise.
bool HostReordersGraphs();

const char* ModeName(kvarn_mode mode);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CONFIG_H_
