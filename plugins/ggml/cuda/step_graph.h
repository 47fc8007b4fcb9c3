// SPDX-License-Identifier: Apache-2.0
//
// One CUDA graph for a whole step: the host's pieces and our kernels between them. The host runs
// the same graph for many tokens; launching it at once takes the place of some ten calls a layer.
//
// The host's CUDA backend makes graphs of its own for pieces that it sees again unchanged; making
// one inside of a recording is an error that it does not survive. So while a step is recorded it is
// shown changed pieces (see GraphRun::RunInner), which it runs call by call. Recorded are graphs
// that the host numbers (uid), at their third run in a row, when all memory has been asked for.
#ifndef KVARN_PLUGINS_GGML_CUDA_STEP_GRAPH_H_
#define KVARN_PLUGINS_GGML_CUDA_STEP_GRAPH_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <shared_mutex>

#include "cuda/handoff.h"

namespace kvarn::ggml_plugin {

// Held while a thread records; whoever frees a backend of the host's has to hold it alone: CUDA
// refuses some of what that does while any thread records, and the host aborts over it.
std::shared_mutex& Recordings();

class StepGraph {
 public:
  explicit StepGraph(bool allowed) : allowed_(allowed) {}
  ~StepGraph() { Drop(); }
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // The next graph to run is this one; forgets what was recorded of another.
  void Next(uint64_t uid);
  // What was recorded does not serve any more; the graph runs piece by piece again.
  void Forget() {
    Drop();
    runs_ = 0;
  }

  bool Recorded() const { return exec_ != nullptr; }
  bool Settled() const { return allowed_ && runs_ > kRunsBefore; }

  // Between them nothing runs, everything is recorded. False if that was refused, then it must be
  // run after all, and no other is tried.
  bool Begin(Handoff* handoff);
  bool End(Handoff* handoff);
  // False if it did not start: the steps must be run after all, and no other recording is tried.
  bool Launch(Handoff* handoff);

 private:
  static constexpr int kRunsBefore = 2;

  void Drop();

  bool allowed_;
  uint64_t uid_ = 0;
  int runs_ = 0;  // of this uid in a row
  cudaGraphExec_t exec_ = nullptr;
  std::shared_lock<std::shared_mutex> recording_;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_STEP_GRAPH_H_
