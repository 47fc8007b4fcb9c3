// SPDX-License-Identifier: Apache-2.0
#include "cuda/graph_run.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "counters.h"
#include "f16_windows.h"
#include "ggml-impl.h"
#include "kvarn/kvarn_cuda.h"
#include "log.h"
#include "node_generic.h"

namespace kvarn::ggml_plugin {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9E3779B97F4A7C15U * (b + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Of all graphs of the process, so that no two writes of different graphs look the same.
uint64_t NextGraph() {
  static std::atomic<uint64_t> number{0};
  return ++number;
}

kvarn_cuda_plane_write WriteOf(const SetRowsPart& part) {
  const KvTensor& kv = *part.kv;
  kvarn_cuda_plane_write write = {};
  write.plane = kv.plane();
  write.planes = kv.PlaneMemory(0, 0);
  write.plane_stride = static_cast<int64_t>(kv.head_stride());
  write.n_streams = static_cast<int32_t>(kv.n_streams());
  write.n_kv_heads = kv.n_heads();
  write.n_rows = static_cast<int32_t>(part.rows->ne[1]);
  write.rows = static_cast<const int64_t*>(part.indices->data);
  write.x = static_cast<const float*>(part.rows->data);
  write.row_stride = static_cast<int64_t>(part.rows->nb[1]);
  write.head_stride = static_cast<int64_t>(kv.head_dim()) * int64_t{sizeof(float)};
  // Tokens of several streams lie one stride apart, or are not used.
  const ggml_tensor* query = part.query;
  if (query != nullptr &&
      (query->ne[3] == 1 || query->nb[3] == query->nb[1] * static_cast<size_t>(query->ne[1]))) {
    write.query = static_cast<const float*>(query->data);
    write.heads_per_kv = static_cast<int32_t>(query->ne[2]) / kv.n_heads();
    write.query_row_stride = static_cast<int64_t>(query->nb[1]);
    write.query_head_stride = static_cast<int64_t>(query->nb[2]);
  }
  return write;
}

// Whether the output takes the place of rows that a write reads, whole rows of all heads.
bool Overwrites(const kvarn_attention& call, const kvarn_cuda_plane_write& write) {
  const auto out = reinterpret_cast<uintptr_t>(call.out);
  const uintptr_t out_end = out +
                            (static_cast<size_t>(call.n_streams) - 1) * call.out_stream_stride +
                            static_cast<size_t>(call.n_tokens) * call.out_token_stride;
  const auto rows = reinterpret_cast<uintptr_t>(write.x);
  const int64_t heads = write.n_kv_heads * write.head_stride;
  const auto bytes = static_cast<uintptr_t>((write.n_rows - 1) * write.row_stride + heads);
  return out < rows + bytes && rows < out_end;
}

// Whether our kernels serve a write: its row numbers, head dims, and tails of few tiles.
bool IsServed(const SetRowsJob& job) {
  for (int i = 0; i < job.n_parts; ++i) {
    const ggml_tensor* indices = job.parts[i].indices;
    if (indices->type != GGML_TYPE_I64 || indices->nb[0] != sizeof(int64_t)) return false;
  }
  kvarn_cuda_plane_write writes[2];
  for (int i = 0; i < job.n_parts; ++i) writes[i] = WriteOf(job.parts[i]);
  return kvarn_cuda_planes_write_workspace_bytes(writes, job.n_parts) != 0;
}

// Of graphs for as many tokens and outputs, whatever is in the cache.
uint64_t ShapeOf(const GraphNodes& graph) {
  auto shape = static_cast<uint64_t>(graph.n);
  for (int i = 0; i < GGML_MAX_DIMS && graph.n > 0; ++i) {
    shape = Mix(shape, static_cast<uint64_t>(graph[0]->ne[i]));
    shape = Mix(shape, static_cast<uint64_t>(graph[graph.n - 1]->ne[i]));
  }
  return shape;
}

bool HasWork(const GraphNodes& graph, int first, int end) {
  for (int i = first; i < end; ++i) {
    if (!IsViewOp(graph[i])) return true;
  }
  return false;
}

// Planes of K and V, and of all heads, must keep their tiles in the same places. Writes by our
// kernels see to that; after others, caches that disagree are written anew. Returns the history.
kvarn_status Agree(KvTensor* keys, KvTensor* values, uint64_t* history) {
  *history = 0;
  for (int64_t stream = 0; stream < keys->n_streams(); ++stream) {
    KvTensor::Life life = keys->LifeOf(stream);
    const KvTensor::Life other = values->LifeOf(stream);
    if (!life.agree || !other.agree || life.number != other.number) {
      const int64_t n_rows = std::max(keys->RowsHeld(stream), values->RowsHeld(stream));
      kvarn_status status = keys->Rewrite(stream, n_rows);
      if (status == KVARN_OK) status = values->Rewrite(stream, n_rows);
      if (status != KVARN_OK) return status;
      life = keys->LifeOf(stream);
    }
    *history = Mix(*history, life.number);
  }
  return KVARN_OK;
}

}  // namespace

GraphRun::GraphRun(Device* device, ggml_backend_t inner)
    : device_(device),
      inner_(inner),
      handoff_(device, inner),
      checks_(device),
      plans_(device->memory),
      recent_(device->memory),
      step_graph_(device->format.cuda_graphs),
      write_workspace_(device->memory),
      taken_(device->memory) {}

std::unique_ptr<GraphRun> GraphRun::New(Device* device, ggml_backend_t inner) {
  auto run = std::make_unique<GraphRun>(device, inner);
  if (!run->handoff_.Ok()) {
    LogError("%s gives no stream", device->name.c_str());
    return nullptr;
  }
  return run;
}

void GraphRun::TellGeneric(const char* node, const char* what) {
  if (!told_generic_) {
    LogWarn("%s: no kernel of this build serves its %s: it runs on decoded copies, slowly", node,
            what);
  }
  told_generic_ = true;
}

void GraphRun::PlanNode(const GraphNodes& graph, int index) {
  const ggml_tensor* node = graph[index];
  if (node->op == GGML_OP_SET_ROWS) {
    if (!set_rows_.empty() && set_rows_.back().parts[1].node == node) {
      steps_.push_back({index, Kind::kDone, 0});  // the K node before it writes these rows
      return;
    }
    SetRowsJob job;
    const bool planes = PlanSetRows(graph, index, nullptr, &job);
    if (planes && IsServed(job)) {
      steps_.push_back({index, Kind::kSetRows, set_rows_.size()});
      set_rows_.push_back(job);
      return;
    }
    if (planes) {
      TellGeneric(node->name, "rows (head dim beyond 256, or KVARN_TAIL beyond some 60 tiles)");
    }
  } else if (node->op == GGML_OP_FLASH_ATTN_EXT) {
    LearnHeadDim(node);
    AttentionJob job;
    if (FillAttention(node, &job) && kvarn_cuda_attention_workspace_bytes(&job.call) != 0) {
      steps_.push_back({index, Kind::kAttention, attention_.size()});
      attention_.push_back(job);
      return;
    }
    TellGeneric(node->name, "attention (head dim, bits or mask)");
  }
  steps_.push_back({index, Kind::kGeneric, 0});
  may_record_ = false;
}

bool GraphRun::Plan(const GraphNodes& graph) {
  may_record_ = true;
  steps_.clear();
  set_rows_.clear();
  attention_.clear();
  if (!checks_.CheckPlacement(graph)) return false;
  for (int i = 0; i < graph.n; ++i) {
    if (graph[i]->op == GGML_OP_MUL_MAT_ID) may_record_ = false;  // may wait for the GPU
    if (IsViewOp(graph[i]) || !TouchesPlanes(graph[i])) continue;
    if (!checks_.CheckWrite(graph[i])) return false;
    PlanNode(graph, i);
  }
  may_take_ = MayTake(graph);
  return true;
}

// The tables of all layers take the rows of a step of few tokens at once (kvarn_cuda_planes_take),
// if nothing else than our kernels will use the caches until they are written.
bool GraphRun::MayTake(const GraphNodes& graph) const {
  std::set<const KvTensor*> caches;
  for (const SetRowsJob& job : set_rows_) {
    kvarn_cuda_plane_write writes[2];
    for (int i = 0; i < job.n_parts; ++i) {
      writes[i] = WriteOf(job.parts[i]);
      if (!caches.insert(job.parts[i].kv).second) return false;
      if (!IsReadyBefore(graph, 0, job.parts[i].indices)) return false;  // computed by a node
      if (kvarn_cuda_planes_taken_bytes(&writes[i]) == 0) return false;
    }
    if (job.n_parts == 2 && kvarn_cuda_recent_bytes(writes) != 0) return false;
  }
  return !set_rows_.empty() && std::none_of(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.kind == Kind::kGeneric;
  });
}

size_t GraphRun::WritesOf(const SetRowsJob& job, kvarn_cuda_plane_write (&writes)[2]) const {
  const auto index = static_cast<size_t>(&job - set_rows_.data());
  for (int i = 0; i < job.n_parts; ++i) {
    writes[i] = WriteOf(job.parts[i]);
    if (taken_at_ == nullptr) continue;
    writes[i].taken = taken_at_ + (2 * index + static_cast<size_t>(i)) * taken_bytes_;
  }
  return kvarn_cuda_planes_write_workspace_bytes(writes, job.n_parts);
}

kvarn_status GraphRun::TakeRows() {
  taken_at_ = nullptr;
  if (!may_take_) return KVARN_OK;
  constexpr size_t kAlign = 64;
  taken_bytes_ = 0;
  for (const SetRowsJob& job : set_rows_) {
    for (int i = 0; i < job.n_parts; ++i) {
      const kvarn_cuda_plane_write write = WriteOf(job.parts[i]);
      taken_bytes_ = std::max(taken_bytes_, kvarn_cuda_planes_taken_bytes(&write));
    }
  }
  taken_bytes_ = (taken_bytes_ + kAlign - 1) / kAlign * kAlign;
  taken_at_ = taken_.Get(2 * set_rows_.size() * taken_bytes_);
  if (taken_at_ == nullptr) return KVARN_OK;  // without
  std::vector<kvarn_cuda_plane_write> all;
  all.reserve(2 * set_rows_.size());
  for (const SetRowsJob& job : set_rows_) {
    kvarn_cuda_plane_write writes[2];
    WritesOf(job, writes);
    all.insert(all.end(), writes, writes + job.n_parts);
  }
  handoff_.ToOurs();
  return kvarn_cuda_planes_take(all.data(), static_cast<int32_t>(all.size()), handoff_.stream());
}

// Waits for the GPU if the caches of this attention were touched. A failure leaves them so.
kvarn_status GraphRun::AgreeOn(const AttentionJob& job) {
  auto* keys = const_cast<KvTensor*>(job.keys);
  auto* values = const_cast<KvTensor*>(job.values);
  if (!keys->touched() && !values->touched()) return KVARN_OK;
  kvarn_status status = FinishWrites();
  if (status != KVARN_OK) return status;
  handoff_.Synchronize();
  uint64_t history = 0;
  status = Agree(keys, values, &history);
  if (status != KVARN_OK) return status;
  keys->SetHistory(history);
  keys->SetTouched(false);
  values->SetTouched(false);
  return KVARN_OK;
}

kvarn_status GraphRun::AgreeOnLives() {
  for (const AttentionJob& job : attention_) {
    const kvarn_status status = AgreeOn(job);
    if (status != KVARN_OK) return status;
  }
  return KVARN_OK;
}

ggml_status GraphRun::RunInner(ggml_cgraph* graph, int first, int end) {
  handoff_.ToInner();
  ggml_cgraph part = Host().ggml_graph_view(graph, first, end);
  // The CUDA backend knows its graphs by the first node, then by the number or, without one, by all
  // bytes of all nodes. One that is recorded must differ from all that it has seen.
  if (!recording_) {
    part.uid = graph->uid;
    return inner_->iface.graph_compute(inner_, &part);
  }
  part.uid = 0;
  auto& unused = graph->nodes[first]->padding;
  char before[sizeof(unused)];
  std::memcpy(before, unused, sizeof(unused));
  static_assert(sizeof(recordings_) <= sizeof(unused));
  std::memcpy(unused, &recordings_, sizeof(recordings_));
  const ggml_status status = inner_->iface.graph_compute(inner_, &part);
  std::memcpy(unused, before, sizeof(unused));
  return status;
}

// Where attention reads copies of recent tiles, these are encoded beside it, and only once it has
// been launched: it leaves multiprocessors free, but cannot share one with the encoder.
kvarn_status GraphRun::RunSetRows(const SetRowsJob& job) {
  kvarn_status status = FinishWrites();  // the layer before uses the same memory
  if (status != KVARN_OK) return status;
  kvarn_cuda_plane_write writes[2];
  uint8_t* workspace = write_workspace_.Get(WritesOf(job, writes));
  if (workspace == nullptr) return KVARN_ERROR_MEMORY;
  const void* recent = nullptr;
  if (job.n_parts == 2) {
    status = recent_.Keep(job.parts[0].kv, writes, handoff_.stream(), &recent);
    if (status != KVARN_OK) return status;
  }
  status = kvarn_cuda_planes_write_first(writes, job.n_parts, recent, workspace, handoff_.stream());
  if (status != KVARN_OK || recent == nullptr) return status;
  rest_ = {{writes[0], writes[1]}, recent, workspace};
  handoff_.MayFork();
  return KVARN_OK;
}

kvarn_status GraphRun::RunRest(const WriteRest& rest, cudaStream_t stream) {
  if (rest.recent == nullptr) return KVARN_OK;
  return kvarn_cuda_planes_write_rest(rest.writes, 2, rest.recent, rest.workspace, stream);
}

// In order with all that comes after it on our stream.
kvarn_status GraphRun::FinishWrites() {
  const kvarn_status status = RunRest(std::exchange(rest_, {}), handoff_.stream());
  handoff_.Join();
  beside_ = {};
  return status;
}

// Rows that the rest of a write reads, or will read.
bool GraphRun::OverwritesRows(const kvarn_attention& call) const {
  for (const WriteRest* rest : {&rest_, &beside_}) {
    if (rest->recent == nullptr) continue;
    if (Overwrites(call, rest->writes[0]) || Overwrites(call, rest->writes[1])) return true;
  }
  return false;
}

// On decoded copies, and waiting for the GPU: context shifts, odd views.
kvarn_status GraphRun::RunGeneric(ggml_tensor* node) {
  kvarn_status status = FinishWrites();
  if (status != KVARN_OK) return status;
  handoff_.Synchronize();
  ggml_tensor copy;
  ggml_tensor sources[GGML_MAX_SRC];
  F16Windows windows(device_->memory);
  status = windows.Open(*node, &copy, sources);
  if (status != KVARN_OK) return status;
  if (RunSingleNode(inner_, &copy, &graph_memory_) != GGML_STATUS_SUCCESS) {
    return KVARN_ERROR_UNSUPPORTED;
  }
  inner_->iface.synchronize(inner_);
  counters.generic_nodes.fetch_add(1, std::memory_order_relaxed);
  return windows.WriteBack(*node);
}

kvarn_status GraphRun::RunAttention(const AttentionJob& job) {
  // A node of the generic kind before it, of this graph, may have written these caches.
  kvarn_status status = AgreeOn(job);
  if (status != KVARN_OK) return status;
  handoff_.ToOurs();
  if (!recording_) counters.attention_calls.fetch_add(1, std::memory_order_relaxed);
  const auto first_stream = static_cast<uint64_t>(job.key_tokens.first_stream);
  kvarn_cuda_recent recent;
  const bool copies =
      kvarn_cuda_attention_reads_recent(&job.call) != 0 && recent_.Find(job, &recent);
  // GraphOptimize (backend.cpp) asks the host to leave these rows where they are.
  if (!copies || OverwritesRows(job.call)) status = FinishWrites();
  if (status != KVARN_OK) return status;
  status = plans_.Run(job.call, copies ? &recent : nullptr, Mix(job.keys->history(), first_stream),
                      handoff_.stream());
  if (status != KVARN_OK || rest_.recent == nullptr) return status;
  beside_ = std::exchange(rest_, {});
  return RunRest(beside_, handoff_.Fork());
}

kvarn_status GraphRun::RunStep(const GraphNodes& graph, const Step& step) {
  switch (step.kind) {
    case Kind::kDone:
      return KVARN_OK;
    case Kind::kSetRows:
      handoff_.ToOurs();
      return RunSetRows(set_rows_[step.index]);
    case Kind::kAttention:
      return RunAttention(attention_[step.index]);
    case Kind::kGeneric:
      return RunGeneric(graph[step.node]);
  }
  return KVARN_ERROR_UNSUPPORTED;
}

bool GraphRun::CachesTouched() const {
  return std::any_of(attention_.begin(), attention_.end(), [](const AttentionJob& job) {
    return job.keys->touched() || job.values->touched();
  });
}

// Layers that share the plan of a step are known by the writes to their caches.
void GraphRun::NoteWrites() {
  const uint64_t number = NextGraph();
  for (const SetRowsJob& job : set_rows_) {
    for (int i = 0; i < job.n_parts; ++i) {
      KvTensor* kv = job.parts[i].kv;
      const auto rows = reinterpret_cast<uintptr_t>(job.parts[i].indices->data);
      kv->SetHistory(Mix(Mix(kv->history(), number), rows));
    }
  }
}

// After a graph that broke off: some of its caches have its rows, others do not.
void GraphRun::MarkAllTouched() {
  for (const SetRowsJob& job : set_rows_) {
    for (int i = 0; i < job.n_parts; ++i) job.parts[i].kv->SetTouched(true);
  }
}

ggml_status GraphRun::TrySteps(ggml_cgraph* cgraph, const GraphNodes& graph) {
  plans_.BeginGraph();
  recent_.BeginGraph();
  int next = 0;
  kvarn_status status = TakeRows();
  for (const Step& step : steps_) {
    if (status != KVARN_OK) break;
    if (HasWork(graph, next, step.node)) {
      status = FinishWrites();
      if (status != KVARN_OK) break;
      const ggml_status inner_status = RunInner(cgraph, next, step.node);
      if (inner_status != GGML_STATUS_SUCCESS) {
        MarkAllTouched();
        return inner_status;
      }
    }
    status = RunStep(graph, step);
    next = step.node + 1;
  }
  // After a failure too: the tables already say what the rest of a write will have done.
  const kvarn_status finished = FinishWrites();
  if (status == KVARN_OK) status = finished;
  handoff_.ToInner();
  if (status != KVARN_OK) {
    MarkAllTouched();
    LogError("a KV cache operation failed: %s", kvarn_status_text(status));
    return GGML_STATUS_FAILED;
  }
  return HasWork(graph, next, graph.n) ? RunInner(cgraph, next, graph.n) : GGML_STATUS_SUCCESS;
}

// Never throws: a recording has to end, and after half of a graph caches have parted.
ggml_status GraphRun::RunSteps(ggml_cgraph* cgraph, const GraphNodes& graph) {
  ggml_status status = GGML_STATUS_ALLOC_FAILED;
  try {
    status = TrySteps(cgraph, graph);
  } catch (...) {
    FinishWrites();
    handoff_.ToInner();
    MarkAllTouched();
    LogError("out of memory");
  }
  if (!recording_) handoff_.MarkDone();
  return status;
}

// Of each attention, then each write: the first with the same history. Those share a plan or
// copies of tiles, so what was recorded serves as long as this stays.
std::vector<size_t> GraphRun::Sharing() const {
  std::vector<uint64_t> histories;
  histories.reserve(attention_.size() + set_rows_.size());
  for (const AttentionJob& job : attention_) {
    histories.push_back(
        Mix(job.keys->history(), static_cast<uint64_t>(job.key_tokens.first_stream)));
  }
  for (const SetRowsJob& job : set_rows_) histories.push_back(job.parts[0].kv->history());
  std::map<uint64_t, size_t> first;
  std::vector<size_t> sharing;
  sharing.reserve(histories.size());
  for (size_t i = 0; i < histories.size(); ++i) {
    sharing.push_back(first.try_emplace(histories[i], i).first->second);
  }
  return sharing;
}

// What was recorded, or the steps that it was recorded of.
ggml_status GraphRun::LaunchStep(ggml_cgraph* cgraph, const GraphNodes& graph) {
  if (!step_graph_.Launch(&handoff_)) return RunSteps(cgraph, graph);
  counters.attention_calls.fetch_add(attention_.size(), std::memory_order_relaxed);
  return GGML_STATUS_SUCCESS;
}

ggml_status GraphRun::RecordStep(ggml_cgraph* cgraph, const GraphNodes& graph) {
  const uint64_t moves = DeviceBlock::Moves();
  recordings_ += 1;
  recording_ = true;
  const ggml_status status = RunSteps(cgraph, graph);
  recording_ = false;
  if (!step_graph_.End(&handoff_)) return RunSteps(cgraph, graph);
  if (status != GGML_STATUS_SUCCESS) {
    step_graph_.Forget();
    return status;
  }
  if (DeviceBlock::Moves() != moves) {  // one may have been recorded where it was before
    step_graph_.Forget();
    return RunSteps(cgraph, graph);
  }
  sharing_ = Sharing();
  return LaunchStep(cgraph, graph);
}

ggml_status GraphRun::Compute(ggml_cgraph* cgraph) {
  cudaSetDevice(device_->gpu);
  const GraphNodes graph = {Host().ggml_graph_nodes(cgraph), Host().ggml_graph_n_nodes(cgraph)};
  step_graph_.Next(cgraph->uid, ShapeOf(graph));
  if (step_graph_.Recorded() && !CachesTouched()) {
    NoteWrites();
    return LaunchStep(cgraph, graph);
  }
  if (!Plan(graph)) return GGML_STATUS_FAILED;
  if (steps_.empty()) return inner_->iface.graph_compute(inner_, cgraph);
  if (AgreeOnLives() != KVARN_OK) {
    LogError("caches that the host has changed could not be read");
    return GGML_STATUS_FAILED;
  }
  NoteWrites();
  if (step_graph_.Recorded()) {  // touched since
    if (may_record_ && Sharing() == sharing_) return LaunchStep(cgraph, graph);
    step_graph_.Forget();
  }
  if (!may_record_ || !step_graph_.Settled() || !step_graph_.Begin(&handoff_)) {
    return RunSteps(cgraph, graph);
  }
  return RecordStep(cgraph, graph);
}

}  // namespace kvarn::ggml_plugin
