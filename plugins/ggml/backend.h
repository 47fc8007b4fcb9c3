// SPDX-License-Identifier: Apache-2.0
//
// A backend (ggml's word for an execution stream) of a CPU device: the CPU backend behind a rewrite
// of the nodes on KV caches. The functions below are handed out by name through the registry, for
// the backends of all devices; those of GPUs have no threads to set.
#ifndef KVARN_PLUGINS_GGML_BACKEND_H_
#define KVARN_PLUGINS_GGML_BACKEND_H_

#include "host.h"

namespace kvarn::ggml_plugin {

void SetThreads(ggml_backend_t backend, int n_threads);
void SetThreadpool(ggml_backend_t backend, struct ggml_threadpool* threadpool);
void SetAbortCallback(ggml_backend_t backend, ggml_abort_callback callback, void* data);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_BACKEND_H_
