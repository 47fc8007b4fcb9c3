// SPDX-License-Identifier: Apache-2.0
//
// Messages through the host's logger, each one line that begins with "kvarn: ".
#ifndef KVARN_PLUGINS_GGML_LOG_H_
#define KVARN_PLUGINS_GGML_LOG_H_

namespace kvarn::ggml_plugin {

__attribute__((format(printf, 1, 2))) void LogDebug(const char* format, ...);
__attribute__((format(printf, 1, 2))) void LogInfo(const char* format, ...);
__attribute__((format(printf, 1, 2))) void LogWarn(const char* format, ...);
__attribute__((format(printf, 1, 2))) void LogError(const char* format, ...);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_LOG_H_
