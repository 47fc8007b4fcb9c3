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
  recorded_ = false;
}

void StepGraph::Next(uint64_t uid, uint64_t shape) {
  if (uid == 0 || uid != uid_) {
    successor_ = shape == shape_ && served_ >= kServedLong;
    Forget();
  }
  uid_ = uid;
  shape_ = shape;
  runs_ += uid == 0 ? 0 : 1;
}

// Graphs that follow each other differ in numbers alone, and updating is several times cheaper.
bool StepGraph::Instantiate(cudaGraph_t graph) {
  cudaGraphExecUpdateResultInfo info = {};
  if (exec_ != nullptr && Succeeded(cudaGraphExecUpdate(exec_, graph, &info))) return true;
  Drop();
  if (cudaGraphInstantiate(&exec_, graph, 0) == cudaSuccess) return true;
  exec_ = nullptr;
  return false;
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
  allowed_ = cudaStreamEndCapture(handoff->stream(), &graph) == cudaSuccess && graph != nullptr &&
             Instantiate(graph);
  recording_ = {};
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!allowed_) {
    LogDebug("no CUDA graph of a whole step: %s", cudaGetErrorString(cudaGetLastError()));
    Drop();
  }
  recorded_ = allowed_;
  return allowed_;
}

bool StepGraph::Launch(Handoff* handoff) {
  handoff->ToOurs();
  const cudaError_t error = cudaGraphLaunch(exec_, handoff->stream());
  if (Succeeded(error)) {
    served_ += 1;
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
