// SPDX-License-Identifier: Apache-2.0
//
// Captures one decode step (append and attention) in a CUDA graph and replays it for 300 steps
// across seals, with drafts that are partly rejected, beside a cache that runs the same steps
// eagerly. Outputs after each step and the caches at the end must be the same bits. One
// self-contained program: built anywhere, run on a machine with a GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "append_device.h"

namespace {

using kvarn_cuda_test::AppendShape;
using kvarn_cuda_test::Check;
using kvarn_cuda_test::DeviceCache;
using kvarn_cuda_test::HostRow;
using kvarn_cuda_test::MakeHostRow;
using kvarn_cuda_test::Step;

constexpr int kSkip = 77;  // ctest: skipped
constexpr int kSteps = 300;

AppendShape Shape(int width) {
  AppendShape s = {};
  s.key = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128};
  s.value = {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, 2, 128, 128};
  s.dtype = KVARN_FP16;
  s.n_sequences = 3;
  s.n_kv_heads = 2;
  s.heads_per_kv = width == 1 ? 8 : 2;
  s.ring_rows = 3 * 128;
  s.sink = true;
  s.queries = true;
  s.balance_tile = 1;
  return s;
}

// `width` new rows of each sequence, after the rows of the last step that were accepted.
Step NextStep(const AppendShape& shape, int width, std::mt19937* random,
              std::vector<int32_t>* accepted) {
  Step step;
  step.row_begin.push_back(0);
  for (int32_t& rows : *accepted) {
    for (int i = 0; i < width; ++i) {
      const HostRow row = MakeHostRow(shape, random);
      step.keys.insert(step.keys.end(), row.key.begin(), row.key.end());
      step.values.insert(step.values.end(), row.value.begin(), row.value.end());
      step.queries.insert(step.queries.end(), row.query.begin(), row.query.end());
    }
    step.row_begin.push_back(step.row_begin.back() + width);
    step.lengths.push_back(rows + width);
    rows += 1 + static_cast<int32_t>((*random)() % static_cast<unsigned>(width));
  }
  return step;
}

void Enqueue(DeviceCache* cache, int width, cudaStream_t stream) {
  const kvarn_status appended = cache->Append(stream);
  const kvarn_status attended = appended == KVARN_OK ? cache->Attend(width, stream) : appended;
  if (attended != KVARN_OK) {
    std::printf("step: %s\n", kvarn_status_text(attended));
    std::exit(1);
  }
}

int Run(int width) {
  const AppendShape shape = Shape(width);
  const int rows = shape.n_sequences * width;
  const int tiles = 2 + kSteps * width / shape.Group();
  DeviceCache eager(shape, rows, tiles);
  DeviceCache replayed(shape, rows, tiles);
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreate(&stream), "stream");
  std::mt19937 random(static_cast<unsigned>(width));
  std::vector<int32_t> accepted(static_cast<size_t>(shape.n_sequences), 0);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  int different = 0;
  int32_t longest = 0;
  for (int i = 0; i < kSteps; ++i) {
    const Step step = NextStep(shape, width, &random, &accepted);
    for (const int32_t length : step.lengths) longest = std::max(longest, length);
    eager.Upload(step);
    replayed.Upload(step);
    Enqueue(&eager, width, stream);
    if (replay == nullptr) {
      Enqueue(&replayed, width, stream);  // workspaces exist before the capture
      Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
      Enqueue(&replayed, width, stream);
      Check(cudaStreamEndCapture(stream, &graph), "end of capture");
      Check(cudaGraphInstantiate(&replay, graph, 0), "instantiate");
    }
    Check(cudaGraphLaunch(replay, stream), "launch");
    Check(cudaStreamSynchronize(stream), "step");
    different += eager.Out() != replayed.Out() ? 1 : 0;
  }
  const bool same_cache = eager.Records(true) == replayed.Records(true) &&
                          eager.Records(false) == replayed.Records(false) &&
                          eager.Exact(true) == replayed.Exact(true) &&
                          eager.Exact(false) == replayed.Exact(false);
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  const bool ok = different == 0 && same_cache && longest > 2 * shape.Group();
  std::printf("%s width %d: %d steps to %d rows, outputs of %d differ, caches %s\n",
              ok ? "ok" : "FAILED", width, kSteps, longest, different,
              same_cache ? "equal" : "differ");
  return ok ? 0 : 1;
}

}  // namespace

int main() {
  if (!kvarn_cuda_test::HasDevice()) {
    std::printf("skipped: no CUDA device on this machine\n");
    return kSkip;
  }
  const int failed = Run(1) + Run(4);
  std::printf("%d passed, %d failed\n", 2 - failed, failed);
  return failed == 0 ? 0 : 1;
}
