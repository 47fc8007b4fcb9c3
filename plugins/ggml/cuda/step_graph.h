// SPDX-License-Identifier: Apache-2.0
//
// One CUDA graph for a whole step: the host's pieces and our kernels between them. The host runs
// the same graph for many tokens; launching it at once takes the place of some ten calls a layer.
//
// The host's CUDA backend makes graphs of its own for pieces that it sees again unchanged; making
// one inside of a recording is an error that it does not survive. So while a step is recorded it is
// shown changed pieces (see GraphRun::RunInner), which it runs call by call. Recorded are graphs
// that the host numbers (uid), at their third run in a row, when all memory has been asked for; at
// once if they take the place of one of the same shape that has served for long: a host that
// decodes has a new graph for each 256 rows.
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

  // The next graph to run is this one; what was recorded of another does not serve any more. Graphs
  // of one `shape` ask for the same memory, or little more.
  void Next(uint64_t uid, uint64_t shape);
  // Nor does what was recorded of this one; it runs piece by piece again.
  void Forget() {
    recorded_ = false;
    served_ = 0;
    runs_ = 0;
  }

  bool Recorded() const { return recorded_; }
  bool Settled() const { return allowed_ && (runs_ > kRunsBefore || (runs_ > 0 && successor_)); }

  // Between them nothing runs, everything is recorded. False if that was refused, then it must be
  // run after all, and no other is tried.
  bool Begin(Handoff* handoff);
  bool End(Handoff* handoff);
  // False if it did not start: the steps must be run after all, and no other recording is tried.
  bool Launch(Handoff* handoff);

 private:
  static constexpr int kRunsBefore = 2;
  static constexpr int kServedLong = 16;  // launches, after which a recording was worth its time

  void Drop();
  bool Instantiate(cudaGraph_t graph);

  bool allowed_;
  uint64_t uid_ = 0;
  uint64_t shape_ = 0;
  int runs_ = 0;                    // of this uid in a row
  int served_ = 0;                  // launches of what was recorded last
  bool successor_ = false;          // of one that has served for long
  bool recorded_ = false;           // exec_ is of this uid
  cudaGraphExec_t exec_ = nullptr;  // may be of an earlier one, to be updated
  std::shared_lock<std::shared_mutex> recording_;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_STEP_GRAPH_H_
