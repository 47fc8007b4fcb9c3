// SPDX-License-Identifier: Apache-2.0
//
// Names of presets: kvarn_k{bits}v{bits}_g{group}.
#include <cstring>

#include "kvarn/kvarn.h"

namespace {

bool IsBits(char digit) { return digit == '2' || digit == '3' || digit == '4' || digit == '8'; }

}  // namespace

kvarn_status kvarn_preset_parse(const char* name, kvarn_preset* preset) {
  if (name == nullptr || preset == nullptr) return KVARN_ERROR_ARGUMENT;
  constexpr char kPrefix[] = "kvarn_k";
  constexpr size_t kPrefixLength = sizeof(kPrefix) - 1;
  if (std::strncmp(name, kPrefix, kPrefixLength) != 0) return KVARN_ERROR_PRESET;
  const char* rest = name + kPrefixLength;  // "4v2_g128"
  if (!IsBits(rest[0]) || rest[1] != 'v' || !IsBits(rest[2])) return KVARN_ERROR_PRESET;
  const char* group = rest + 3;
  const bool is_64 = std::strcmp(group, "_g64") == 0;
  if (!is_64 && std::strcmp(group, "_g128") != 0) return KVARN_ERROR_PRESET;
  *preset = kvarn_preset{rest[0] - '0', rest[2] - '0', is_64 ? 64 : 128};
  return KVARN_OK;
}
