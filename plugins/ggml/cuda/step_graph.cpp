// SPDX-License-Identifier: Apache-2.0
#include "cuda/step_graph.h"

#include "log.h"

namespace kvarn::ggml_plugin {

void StepGraph::Drop() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  exec_ = nullptr;
}

void StepGraph::Next(uint64_t uid) {
  if (uid == 0 || uid != uid_) {
    Drop();
    runs_ = 0;
  }
  uid_ = uid;
  runs_ += uid == 0 ? 0 : 1;
}

bool StepGraph::Begin(Handoff* handoff) {
  handoff->ToOurs();
  allowed_ = cudaStreamBeginCapture(handoff->stream(), cudaStreamCaptureModeRelaxed) == cudaSuccess;
  return allowed_;
}

bool StepGraph::End(Handoff* handoff) {
  handoff->ToOurs();
  cudaGraph_t graph = nullptr;
  Drop();
  allowed_ = cudaStreamEndCapture(handoff->stream(), &graph) == cudaSuccess && graph != nullptr &&
             cudaGraphInstantiate(&exec_, graph, 0) == cudaSuccess;
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!allowed_) {
    LogDebug("no CUDA graph of a whole step: %s", cudaGetErrorString(cudaGetLastError()));
    exec_ = nullptr;
  }
  return allowed_;
}

bool StepGraph::Launch(Handoff* handoff) {
  handoff->ToOurs();
  const bool launched = cudaGraphLaunch(exec_, handoff->stream()) == cudaSuccess;
  handoff->ToInner();
  return launched;
}

}  // namespace kvarn::ggml_plugin
