// SPDX-License-Identifier: Apache-2.0
#include "graph_checks.h"

#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

// A V cache written element by element: llama.cpp stores V transposed without flash attention.
bool WritesTransposed(const ggml_tensor* node) {
  const KvTensor* kv = FindKv(node);
  return node->op == GGML_OP_SET_ROWS && kv != nullptr && node->ne[0] == 1 && kv->n_embd() != 1;
}

}  // namespace

bool TouchesPlanes(const ggml_tensor* node) {
  if (FindKv(node) != nullptr) return true;
  for (const ggml_tensor* source : node->src) {
    if (source != nullptr && FindKv(source) != nullptr) return true;
  }
  return false;
}

// Looks once at where the caches lie: layers that are not offloaded, or -nkvo, pass us by silently.
bool GraphChecks::CheckPlacement(const GraphNodes& graph) {
  if (placement_checked_) return true;
  bool ours = false;
  const char* example = nullptr;  // of a cache elsewhere
  for (int i = 0; i < graph.n; ++i) {
    const ggml_tensor* node = graph[i];
    KvIdentity identity;
    if (node->op != GGML_OP_SET_ROWS || !IdentifyKv(Root(node), &identity) ||
        identity.role != KVARN_KEY || Root(node)->buffer == nullptr) {
      continue;
    }
    if (IsKvBuffer(Root(node)->buffer)) {
      ours = true;
    } else if (IsDefaultType(Root(node)->buffer->buft)) {
      LogError("%s lies in a buffer that was not recognised as a KV cache; please report this",
               Root(node)->name);
      return false;
    } else {
      example = Root(node)->name;
    }
  }
  if (!ours && example == nullptr) return true;
  placement_checked_ = true;
  if (example != nullptr) WarnOfCachesElsewhere(device_, example);
  return true;
}

bool GraphChecks::CheckWrite(const ggml_tensor* node) {
  if (!WritesTransposed(node)) return true;
  if (!told_flash_attention_) {
    LogError("device %s needs flash attention: run with -fa on (or auto)", device_->name.c_str());
  }
  told_flash_attention_ = true;
  return false;
}

}  // namespace kvarn::ggml_plugin
