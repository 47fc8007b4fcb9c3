// SPDX-License-Identifier: Apache-2.0
#include "model_hints.h"

#include <cstdio>
#include <cstring>

namespace kvarn::ggml_plugin {

void ModelHints::Observe(const ggml_tensor* op) {
  for (const ggml_tensor* weight : op->src) {
    int layer = 0;
    int end = 0;
    if (weight == nullptr || std::sscanf(weight->name, "blk.%d.%n", &layer, &end) != 1) continue;
    const char* name = weight->name + end;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (layer < last_layer_) layers_.clear();  // layers come in order: this is another model
    last_layer_ = layer;
    if (std::strcmp(name, "attn_k_norm.weight") == 0 && weight->ne[1] == 1) {
      layers_[layer].head_dim = static_cast<int32_t>(weight->ne[0]);
    } else if (std::strcmp(name, "attn_kv_a_mqa.weight") == 0) {
      layers_[layer].latent = true;
    }
  }
}

void ModelHints::Learn(int layer, int32_t head_dim) {
  const std::lock_guard<std::mutex> lock(mutex_);
  layers_[layer].head_dim = head_dim;
}

int32_t ModelHints::HeadDim(int layer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = layers_.find(layer);
  return found == layers_.end() ? 0 : found->second.head_dim;
}

bool ModelHints::IsLatent(int layer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = layers_.find(layer);
  return found != layers_.end() && found->second.latent;
}

}  // namespace kvarn::ggml_plugin
