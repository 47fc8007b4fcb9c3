// SPDX-License-Identifier: Apache-2.0
#include "cuda/step_graph.h"

#include "cuda/succeeded.h"
#include "log.h"

namespace kvarn::ggml_plugin {

std::shared_mutex& Recordings() {
  static std::shared_mutex mutex;
  return mutex;
}

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
  recording_ = std::shared_lock(Recordings());
  allowed_ = Succeeded(cudaStreamBeginCapture(handoff->stream(), cudaStreamCaptureModeRelaxed));
  if (!allowed_) recording_ = {};
  return allowed_;
}

bool StepGraph::End(Handoff* handoff) {
  handoff->ToOurs();
  cudaGraph_t graph = nullptr;
  Drop();
  allowed_ = cudaStreamEndCapture(handoff->stream(), &graph) == cudaSuccess && graph != nullptr &&
             cudaGraphInstantiate(&exec_, graph, 0) == cudaSuccess;
  recording_ = {};
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!allowed_) {
    LogDebug("no CUDA graph of a whole step: %s", cudaGetErrorString(cudaGetLastError()));
    exec_ = nullptr;
  }
  return allowed_;
}

bool StepGraph::Launch(Handoff* handoff) {
  handoff->ToOurs();
  const cudaError_t error = cudaGraphLaunch(exec_, handoff->stream());
  if (Succeeded(error)) {
    handoff->MarkDone();
    handoff->ToInner();
    return true;
  }
  LogDebug("a CUDA graph of a whole step does not start: %s", cudaGetErrorString(error));
  allowed_ = false;
  Drop();
  return false;
}

}  // namespace kvarn::ggml_plugin
