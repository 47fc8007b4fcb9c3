// SPDX-License-Identifier: Apache-2.0
//
// What the names of a model's weights, and graphs of earlier contexts, say about its KV cache
// before the cache exists. llama.cpp asks supports_op once per weight while it loads a model. Hints
// only improve sizes: a wrong one costs memory, never correctness.
#ifndef KVARN_PLUGINS_GGML_MODEL_HINTS_H_
#define KVARN_PLUGINS_GGML_MODEL_HINTS_H_

#include <cstdint>
#include <map>
#include <mutex>

#include "ggml.h"

namespace kvarn::ggml_plugin {

class ModelHints {
 public:
  // `op` is a node that tries a weight, as built by the host's loader.
  void Observe(const ggml_tensor* op);
  // The keys of a layer have this head dim: seen in a graph, of an earlier context or of one that
  // the host built to estimate memory.
  void Learn(int layer, int32_t head_dim);

  // Head dim of a layer's keys, 0 if unknown.
  int32_t HeadDim(int layer) const;
  // The layer caches a latent vector instead of keys and values (MLA): V is a view of K.
  bool IsLatent(int layer) const;

 private:
  struct Layer {
    int32_t head_dim = 0;
    bool latent = false;
  };
  mutable std::mutex mutex_;
  std::map<int, Layer> layers_;
  int last_layer_ = -1;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_MODEL_HINTS_H_
