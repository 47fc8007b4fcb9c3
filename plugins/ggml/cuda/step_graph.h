// SPDX-License-Identifier: Apache-2.0
//
// One CUDA graph for a whole step: the host's pieces and our kernels between them. The host runs
// the same graph for many tokens; launching it at once takes the place of some ten calls a layer.
//
// The pieces are recorded while the host's CUDA backend launches graphs of its own for them, which
// become parts of ours. It records those when it sees a piece for the second time, and recording
// inside of a recording is an error that it does not survive. Hence the rules: only graphs that the
// host numbers (uid), that ran kSettled times in a row with no pause in which it might have dropped
// its own graphs (10 s), and without operations for which it makes none.
#ifndef KVARN_PLUGINS_GGML_CUDA_STEP_GRAPH_H_
#define KVARN_PLUGINS_GGML_CUDA_STEP_GRAPH_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>

#include "cuda/handoff.h"

namespace kvarn::ggml_plugin {

class StepGraph {
 public:
  explicit StepGraph(bool allowed) : allowed_(allowed) {}
  ~StepGraph() { Drop(); }
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // The next graph to run is this one; forgets what was recorded of another.
  void Next(uint64_t uid);
  // What was recorded does not serve any more. The graph runs piece by piece again, for the host's
  // sake too: what that had settled may be gone.
  void Forget() {
    Drop();
    runs_ = 1;
  }

  bool Recorded() const { return exec_ != nullptr; }
  bool Settled() const { return allowed_ && runs_ > kSettled; }

  // Between them nothing runs, everything is recorded. False if that was refused, then it must be
  // run after all, and no other is tried.
  bool Begin(Handoff* handoff);
  bool End(Handoff* handoff);
  bool Launch(Handoff* handoff);

 private:
  static constexpr int kSettled = 4;
  static constexpr std::chrono::seconds kPause{3};

  void Drop();
  static bool TakesGraphs(cudaStream_t stream);

  bool allowed_;
  bool tried_ = false;
  uint64_t uid_ = 0;
  int runs_ = 0;  // of this uid in a row
  std::chrono::steady_clock::time_point last_;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_STEP_GRAPH_H_
