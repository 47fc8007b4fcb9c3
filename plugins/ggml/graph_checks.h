// SPDX-License-Identifier: Apache-2.0
//
// What every device asks of a graph before it runs it.
#ifndef KVARN_PLUGINS_GGML_GRAPH_CHECKS_H_
#define KVARN_PLUGINS_GGML_GRAPH_CHECKS_H_

#include "graph_nodes.h"

namespace kvarn::ggml_plugin {

// The node reads or writes a cache that is kept in planes.
bool TouchesPlanes(const ggml_tensor* node);

class GraphChecks {
 public:
  explicit GraphChecks(Device* device) : device_(device) {}

  // False (after a message) if the graph must not be run. Looks once at where the caches lie.
  bool CheckPlacement(const GraphNodes& graph);
  // False (after one message) for a V cache written element by element.
  bool CheckWrite(const ggml_tensor* node);

 private:
  Device* device_;
  bool placement_checked_ = false;
  bool told_flash_attention_ = false;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_GRAPH_CHECKS_H_
