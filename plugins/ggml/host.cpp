// SPDX-License-Identifier: Apache-2.0
#include "host.h"

#include <dlfcn.h>

#include <cstring>

namespace kvarn::ggml_plugin {
namespace {

// The window of ggml versions whose interface structs equal third_party/ggml/0.25.
constexpr char kSupportedPrefix[] = "0.25.";
constexpr char kSupportedText[] = "0.25.x (GGML_BACKEND_API_VERSION 2)";

HostFunctions functions;

// Names under which hosts ship ggml: own builds and Debian, then node-llama-cpp packages.
constexpr const char* kLibraries[] = {"libggml-base.so.0", "libggml-base.so", "libggml.so.0",
                                      "libggml.so"};

// RTLD_NOLOAD answers only for a library that the process has already loaded. The handles are kept
// for the life of the process, like the plug-in itself.
void* FindSymbol(const char* name) {
  for (const char* library : kLibraries) {
    if (void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD)) {
      if (void* symbol = dlsym(handle, name)) return symbol;
    }
  }
  return dlsym(RTLD_DEFAULT, name);
}

template <typename Function>
bool Bind(const char* name, Function* function) {
  void* symbol = FindSymbol(name);
  std::memcpy(function, &symbol, sizeof(symbol));
  return symbol != nullptr;
}

}  // namespace

const HostFunctions& Host() { return functions; }

bool BindHost(std::string* error) {
  Bind("ggml_log_internal", &functions.ggml_log_internal);
  Bind("ggml_graph_view", &functions.ggml_graph_view);
  if (!Bind("ggml_version", &functions.ggml_version)) {
    *error =
        "no ggml library found in this process (a statically linked host cannot take plug-ins)";
    return false;
  }
  const char* version = functions.ggml_version();
  if (std::strncmp(version, kSupportedPrefix, std::strlen(kSupportedPrefix)) != 0) {
    *error = std::string("the host has ggml ") + version + ", this build supports ggml " +
             kSupportedText;
    return false;
  }
  const char* missing = nullptr;
#define KVARN_BIND(name) \
  if (!Bind(#name, &functions.name)) missing = #name;
  KVARN_HOST_FUNCTIONS(KVARN_BIND)
#undef KVARN_BIND
  if (missing != nullptr) {
    *error = std::string("the host's ggml ") + version + " lacks the function " + missing;
    return false;
  }
  return true;
}

ggml_backend_dev_t FindCpuDevice(std::string* error) {
  ggml_backend_dev_t cpu = functions.ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (cpu == nullptr) {
    *error = "the host has registered no CPU device, which runs everything but the KV cache";
    return nullptr;
  }
  const int api_version = cpu->reg->api_version;
  if (api_version != GGML_BACKEND_API_VERSION) {
    *error = "the host has GGML_BACKEND_API_VERSION " + std::to_string(api_version) +
             ", this build supports ggml " + kSupportedText;
    return nullptr;
  }
  return cpu;
}

bool HostHasGpu() {
  return functions.ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU) != nullptr ||
         functions.ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU) != nullptr;
}

}  // namespace kvarn::ggml_plugin
