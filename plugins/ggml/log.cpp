// SPDX-License-Identifier: Apache-2.0
#include "log.h"

#include <cstdarg>
#include <cstdio>

#include "host.h"

namespace kvarn::ggml_plugin {
namespace {

void Log(ggml_log_level level, const char* format, va_list arguments) {
  char text[1024];
  std::vsnprintf(text, sizeof(text), format, arguments);
  if (Host().ggml_log_internal != nullptr) {
    Host().ggml_log_internal(level, "kvarn: %s\n", text);
  } else if (level != GGML_LOG_LEVEL_DEBUG) {
    std::fprintf(stderr, "kvarn: %s\n", text);
  }
}

}  // namespace

#define KVARN_LOG_FUNCTION(Name, level) \
  void Name(const char* format, ...) {  \
    va_list arguments;                  \
    va_start(arguments, format);        \
    Log(level, format, arguments);      \
    va_end(arguments);                  \
  }

KVARN_LOG_FUNCTION(LogDebug, GGML_LOG_LEVEL_DEBUG)
KVARN_LOG_FUNCTION(LogInfo, GGML_LOG_LEVEL_INFO)
KVARN_LOG_FUNCTION(LogWarn, GGML_LOG_LEVEL_WARN)
KVARN_LOG_FUNCTION(LogError, GGML_LOG_LEVEL_ERROR)

#undef KVARN_LOG_FUNCTION

}  // namespace kvarn::ggml_plugin
