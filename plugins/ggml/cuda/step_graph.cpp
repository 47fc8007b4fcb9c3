// SPDX-License-Identifier: Apache-2.0
#include "cuda/step_graph.h"

#include "log.h"

namespace kvarn::ggml_plugin {

void StepGraph::Drop() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  exec_ = nullptr;
}

void StepGraph::Next(uint64_t uid) {
  const auto now = std::chrono::steady_clock::now();
  if (uid == 0 || uid != uid_) {
    Drop();
    runs_ = 0;
  } else if (now - last_ > kPause) {
    runs_ = 0;
  }
  uid_ = uid;
  last_ = now;
  runs_ += uid == 0 ? 0 : 1;
}

// Whether launching a graph into a recording makes it a part of that, as the CUDA driver has it.
bool StepGraph::TakesGraphs(cudaStream_t stream) {
  cudaGraph_t inner = nullptr;
  cudaGraph_t outer = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaGraphNode_t node = nullptr;
  bool takes = cudaGraphCreate(&inner, 0) == cudaSuccess &&
               cudaGraphAddEmptyNode(&node, inner, nullptr, 0) == cudaSuccess &&
               cudaGraphInstantiate(&exec, inner, 0) == cudaSuccess &&
               cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess;
  if (takes) {
    const bool launched = cudaGraphLaunch(exec, stream) == cudaSuccess;
    takes = cudaStreamEndCapture(stream, &outer) == cudaSuccess && launched;
  }
  if (outer != nullptr) cudaGraphDestroy(outer);
  if (exec != nullptr) cudaGraphExecDestroy(exec);
  if (inner != nullptr) cudaGraphDestroy(inner);
  cudaGetLastError();
  return takes;
}

bool StepGraph::Begin(Handoff* handoff) {
  if (!tried_) allowed_ = TakesGraphs(handoff->stream());
  tried_ = true;
  if (!allowed_) return false;
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
