// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <cerrno>
#include <cstdlib>

namespace kvarn::ggml_plugin {
namespace {

constexpr int kMaxRows = 1 << 20;  // far beyond any sensible tail or sink

std::string Complain(const char* variable, const std::string& value, const std::string& allowed) {
  return std::string(variable) + "=" + value + " is not allowed; allowed: " + allowed;
}

// An unset or empty variable keeps the default.
bool Get(const char* variable, std::string* value) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return false;
  *value = text;
  return true;
}

bool ParseCount(const std::string& text, int* count) {
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (errno != 0 || *end != '\0' || value < 0 || value > kMaxRows) return false;
  *count = static_cast<int>(value);
  return true;
}

bool ReadSliding(const std::string& value, Sliding* sliding) {
  if (value == "auto")
    *sliding = Sliding::kAuto;
  else if (value == "on")
    *sliding = Sliding::kOn;
  else if (value == "off")
    *sliding = Sliding::kOff;
  else
    return false;
  return true;
}

}  // namespace

bool ReadConfig(Config* config, std::string* error) {
  std::string value;
  kvarn_preset preset;
  if (Get("KVARN_PRESET", &value)) config->preset = value;
  if (kvarn_preset_parse(config->preset.c_str(), &preset) != KVARN_OK) {
    *error = Complain("KVARN_PRESET", config->preset,
                      "kvarn_k{2,3,4,8}v{2,3,4,8}_g{64,128}, for example kvarn_k4v2_g128");
    return false;
  }
  if (Get("KVARN_MODE", &value)) {
    if (value == "balanced") {
      config->mode = KVARN_BALANCED;
    } else if (value == "published") {
      config->mode = KVARN_PUBLISHED;
    } else {
      *error = Complain("KVARN_MODE", value, "balanced, published");
      return false;
    }
  }
  if (Get("KVARN_TAIL", &value) && !ParseCount(value, &config->tail_rows)) {
    *error = Complain("KVARN_TAIL", value, "a number of rows from 0 to 1048576");
    return false;
  }
  if (Get("KVARN_SINK", &value) &&
      (!ParseCount(value, &config->sink_tokens) || config->sink_tokens % preset.group != 0)) {
    *error = Complain("KVARN_SINK", value,
                      "0 or a multiple of " + std::to_string(preset.group) + " tokens");
    return false;
  }
  if (Get("KVARN_SLIDING", &value) && !ReadSliding(value, &config->sliding)) {
    *error = Complain("KVARN_SLIDING", value, "auto, on, off");
    return false;
  }
  config->cuda_graphs = std::getenv("GGML_CUDA_DISABLE_GRAPHS") == nullptr;
  if (Get("KVARN_ISA", &config->isa)) {
    const kvarn_status status = kvarn_isa_force(config->isa.c_str());
    if (status != KVARN_OK) {
      *error = Complain("KVARN_ISA", config->isa,
                        "scalar, avx2, avx512, neon, as far as this CPU has them");
      return false;
    }
  }
  return true;
}

bool HostReordersGraphs() {
  static const bool kReorders = [] {
    std::string value;
    return Get("GGML_CUDA_GRAPH_OPT", &value) && std::atoi(value.c_str()) == 1;
  }();
  return kReorders;
}

const char* ModeName(kvarn_mode mode) { return mode == KVARN_PUBLISHED ? "published" : "balanced"; }

}  // namespace kvarn::ggml_plugin
