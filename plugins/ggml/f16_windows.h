// SPDX-License-Identifier: Apache-2.0
//
// The rows of caches that one node touches, as F16 in memory of their own: what a node is run on
// that no kernel of ours serves.
#ifndef KVARN_PLUGINS_GGML_F16_WINDOWS_H_
#define KVARN_PLUGINS_GGML_F16_WINDOWS_H_

#include "buffer.h"

namespace kvarn::ggml_plugin {

class F16Windows {
 public:
  explicit F16Windows(KvMemory* memory) : memory_(memory) {}
  ~F16Windows();
  F16Windows(const F16Windows&) = delete;
  F16Windows& operator=(const F16Windows&) = delete;

  // Copies `node` and its sources into `copy` and `sources`, with their data in windows where it
  // lies in a cache.
  kvarn_status Open(const ggml_tensor& node, ggml_tensor* copy,
                    ggml_tensor (&sources)[GGML_MAX_SRC]);
  // What the node has written, if it writes a cache.
  kvarn_status WriteBack(const ggml_tensor& node);

 private:
  struct Window {
    KvTensor* kv = nullptr;
    size_t begin = 0, end = 0;  // declared bytes, whole rows
    uint8_t* data = nullptr;
  };

  void Cover(const ggml_tensor* tensor);
  kvarn_status Fill(Window* window);
  void Redirect(ggml_tensor* tensor);
  Window* Find(const KvTensor* kv);

  KvMemory* const memory_;
  Window windows_[GGML_MAX_SRC + 1];
  int n_ = 0;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_F16_WINDOWS_H_
