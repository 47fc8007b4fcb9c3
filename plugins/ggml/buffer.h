// SPDX-License-Identifier: Apache-2.0
//
// A buffer of the KV type: one range of zero pages with the arenas of cache tensors, plain F16
// caches and the plain bytes of checkpoints.
#ifndef KVARN_PLUGINS_GGML_BUFFER_H_
#define KVARN_PLUGINS_GGML_BUFFER_H_

#include "device.h"
#include "kv_tensor.h"

namespace kvarn::ggml_plugin {

// Null if memory is short.
ggml_backend_buffer_t NewKvBuffer(Device* device, size_t size);

// True for a buffer made by NewKvBuffer (a size-0 dummy of the KV type is not one).
bool IsKvBuffer(ggml_backend_buffer_t buffer);

// The tensor that owns the memory of `tensor`.
inline const ggml_tensor* Root(const ggml_tensor* tensor) {
  return tensor->view_src != nullptr ? tensor->view_src : tensor;
}

// The cache behind a tensor or view if it is kept in planes, else null.
KvTensor* FindKv(const ggml_tensor* tensor);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_BUFFER_H_
