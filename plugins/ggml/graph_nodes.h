// SPDX-License-Identifier: Apache-2.0
//
// Questions about the nodes of a graph, in execution order.
#ifndef KVARN_PLUGINS_GGML_GRAPH_NODES_H_
#define KVARN_PLUGINS_GGML_GRAPH_NODES_H_

#include <algorithm>

#include "buffer.h"

namespace kvarn::ggml_plugin {

struct GraphNodes {
  ggml_tensor** nodes = nullptr;
  int n = 0;
  ggml_tensor* operator[](int index) const { return nodes[index]; }
};

inline bool IsViewOp(const ggml_tensor* node) {
  return node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE ||
         node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

// How far related nodes of one layer may lie apart. Searches stop there and take the slower way.
constexpr int kNodeWindow = 512;

// True if the data of `tensor` is complete when node `index` runs: what computes it (behind any
// views) comes earlier in the graph or is no node at all.
inline bool IsReadyBefore(const GraphNodes& graph, int index, const ggml_tensor* tensor) {
  while (IsViewOp(tensor) && tensor->src[0] != nullptr) tensor = tensor->src[0];
  if (tensor->op == GGML_OP_NONE) return true;
  for (int i = index - 1; i >= std::max(0, index - kNodeWindow); --i) {
    if (graph[i] == tensor) return true;
  }
  return false;
}

// The next attention node whose K or V is this cache, null if there is none nearby.
inline const ggml_tensor* FindAttention(const GraphNodes& graph, int index, const KvTensor* kv) {
  for (int i = index + 1; i < std::min(graph.n, index + kNodeWindow); ++i) {
    if (graph[i]->op != GGML_OP_FLASH_ATTN_EXT) continue;
    if (FindKv(graph[i]->src[1]) == kv || FindKv(graph[i]->src[2]) == kv) return graph[i];
  }
  return nullptr;
}

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_GRAPH_NODES_H_
