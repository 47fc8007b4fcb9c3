// SPDX-License-Identifier: Apache-2.0
//
// Binding to the host's ggml. The plug-in has no undefined ggml symbol: hosts name their library
// differently and may load it RTLD_LOCAL (docs: ggml.md section 2), so every function is looked up
// at ggml_backend_init.
#ifndef KVARN_PLUGINS_GGML_HOST_H_
#define KVARN_PLUGINS_GGML_HOST_H_

#include <string>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace kvarn::ggml_plugin {

// Functions the plug-in calls. Everything else goes through the interface structs.
#define KVARN_HOST_FUNCTIONS(X) \
  X(ggml_version)               \
  X(ggml_nbytes)                \
  X(ggml_init)                  \
  X(ggml_free)                  \
  X(ggml_new_graph_custom)      \
  X(ggml_graph_add_node)        \
  X(ggml_graph_nodes)           \
  X(ggml_graph_n_nodes)         \
  X(ggml_fp16_to_fp32_row)      \
  X(ggml_type_name)             \
  X(ggml_op_name)               \
  X(ggml_backend_buffer_init)   \
  X(ggml_backend_dev_by_type)   \
  X(ggml_backend_dev_by_name)

struct HostFunctions {
#define KVARN_DECLARE(name) decltype(&::name) name = nullptr;
  KVARN_HOST_FUNCTIONS(KVARN_DECLARE)
#undef KVARN_DECLARE
  // Optional, and declared in ggml-impl.h, which defines macros with everyday names: absent means
  // no devices on GPUs.
  struct ggml_cgraph (*ggml_graph_view)(struct ggml_cgraph* graph, int first, int end) = nullptr;
  // Optional: absent means messages go to stderr.
  void (*ggml_log_internal)(enum ggml_log_level level, const char* format, ...) = nullptr;
};

// Valid after BindHost() returned true.
const HostFunctions& Host();

// Find every function and check the host's version; false fills `error` with one sentence.
bool BindHost(std::string* error);

// The host's CPU device, null if it has none or its ABI is not ours (then `error` says which).
ggml_backend_dev_t FindCpuDevice(std::string* error);

// True if another GPU or integrated GPU is registered.
bool HostHasGpu();

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_HOST_H_
