// SPDX-License-Identifier: Apache-2.0
#include "node_set_rows.h"

namespace kvarn::ggml_plugin {
namespace {

bool FillPart(const GraphNodes& graph, int index, SetRowsPart* part) {
  const ggml_tensor* node = graph[index];
  KvTensor* kv = FindKv(node);
  const ggml_tensor* rows = node->src[0];
  const ggml_tensor* indices = node->src[1];
  if (kv == nullptr || node->view_offs != 0 || node->ne[0] != kv->n_embd() || node->ne[2] != 1 ||
      node->ne[3] != 1 || rows->type != GGML_TYPE_F32 || rows->nb[0] != sizeof(float)) {
    return false;
  }
  if (kv->head_dim() == 0) {
    if (const ggml_tensor* attention = FindAttention(graph, index, kv)) LearnHeadDim(attention);
    kv->EnsureLayout();
  }
  if (kv->plane() == nullptr) return false;
  *part = {node, kv, rows, indices, nullptr, -1, {}};
  return true;
}

// The query rows of the same tokens: llama.cpp computes q before it stores k.
const ggml_tensor* FindQuery(const GraphNodes& graph, int index, const SetRowsPart& part) {
  const ggml_tensor* attention = FindAttention(graph, index, part.kv);
  if (attention == nullptr || FindKv(attention->src[1]) != part.kv) return nullptr;
  const ggml_tensor* query = attention->src[0];
  const bool fits = query->type == GGML_TYPE_F32 && query->nb[0] == sizeof(float) &&
                    query->ne[0] == part.kv->head_dim() && query->ne[2] % part.kv->n_heads() == 0 &&
                    query->ne[1] * query->ne[3] == part.rows->ne[1];
  return fits && IsReadyBefore(graph, index, query) ? query : nullptr;
}

// The V node that directly follows K node `index`, ready to be done together with it, or -1.
int FindValueNode(const GraphNodes& graph, int index) {
  int next = index + 1;
  while (next < graph.n && IsViewOp(graph[next])) ++next;
  if (next >= graph.n || graph[next]->op != GGML_OP_SET_ROWS) return -1;
  const ggml_tensor* node = graph[next];
  const KvTensor* kv = FindKv(node);
  const bool ready = kv != nullptr && kv->role() == KVARN_VALUE &&
                     IsReadyBefore(graph, index, node->src[0]) &&
                     IsReadyBefore(graph, index, node->src[1]);
  return ready ? next : -1;
}

int64_t GlobalRow(const ggml_tensor* indices, int64_t i) {
  const auto* bytes =
      static_cast<const uint8_t*>(indices->data) + i * static_cast<int64_t>(indices->nb[0]);
  return indices->type == GGML_TYPE_I64 ? *reinterpret_cast<const int64_t*>(bytes)
                                        : *reinterpret_cast<const int32_t*>(bytes);
}

// All rows of the batch that belong to one plane, in order.
kvarn_status WritePlane(const SetRowsPart& part, int64_t stream, int32_t head) {
  const KvTensor& kv = *part.kv;
  uint8_t* memory = kv.PlaneMemory(stream, head);
  const auto* rows = static_cast<const uint8_t*>(part.rows->data) +
                     static_cast<size_t>(head) * static_cast<size_t>(kv.head_dim()) * sizeof(float);
  const RecentBlock& copies = part.copies;
  const int64_t place = stream - copies.tokens.first_stream;  // among the streams of the queries
  uint8_t* recent = nullptr;
  if (copies.memory != nullptr && place >= 0 && place < copies.tokens.n_streams) {
    recent = copies.memory + static_cast<size_t>(place) * copies.stream_stride +
             static_cast<size_t>(head) * copies.head_stride;
    kvarn_recent_begin(kv.plane(), recent, copies.n_copies);
  }
  const ggml_tensor* query = part.query;
  const int32_t n_query = query == nullptr ? 0 : static_cast<int32_t>(query->ne[2]) / kv.n_heads();
  for (int64_t i = 0; i < part.rows->ne[1]; ++i) {
    const int64_t global_row = GlobalRow(part.indices, i);
    if (global_row < 0 || global_row >= kv.n_rows() * kv.n_streams()) return KVARN_ERROR_ARGUMENT;
    if (global_row / kv.n_rows() != stream) continue;
    const uint8_t* q = nullptr;
    if (query != nullptr) {
      const auto token = static_cast<size_t>(i % query->ne[1]);
      const auto slot = static_cast<size_t>(i / query->ne[1]);
      q = static_cast<const uint8_t*>(query->data) + token * query->nb[1] +
          static_cast<size_t>(head * n_query) * query->nb[2] + slot * query->nb[3];
    }
    // Copies are of use only to the queries of the same stream.
    const bool keep = recent != nullptr && i / copies.tokens.n_tokens == place;
    const kvarn_status status = kvarn_plane_write_recent(
        kv.plane(), memory, global_row % kv.n_rows(),
        reinterpret_cast<const float*>(rows + static_cast<size_t>(i) * part.rows->nb[1]),
        reinterpret_cast<const float*>(q), n_query, query == nullptr ? 0 : query->nb[2],
        keep ? recent : nullptr, i);
    if (status != KVARN_OK) return status;
  }
  return KVARN_OK;
}

}  // namespace

bool PlanSetRows(const GraphNodes& graph, int index, JobError* error, SetRowsJob* job) {
  *job = {};
  job->error = error;
  SetRowsPart* part = &job->parts[0];
  if (!FillPart(graph, index, part)) return false;
  part->kv->MarkWritten();
  job->n_parts = 1;
  if (part->kv->role() != KVARN_KEY) return true;
  part->query = FindQuery(graph, index, *part);
  const int value_node = FindValueNode(graph, index);
  if (value_node >= 0 && FillPart(graph, value_node, &job->parts[1])) {
    job->parts[1].kv->MarkWritten();
    job->n_parts = 2;
  }
  return true;
}

void RunSetRows(ggml_tensor*, int thread, int n_threads, void* userdata) {
  const auto* job = static_cast<const SetRowsJob*>(userdata);
  if (thread == 0 && job->next_attention != nullptr) {
    job->error->Set(BeginAttention(job->next_attention));
  }
  int unit = 0;  // planes of all parts, dealt out in turn
  for (int p = 0; p < job->n_parts; ++p) {
    const SetRowsPart& part = job->parts[p];
    for (int64_t stream = 0; stream < part.kv->n_streams(); ++stream) {
      for (int32_t head = 0; head < part.kv->n_heads(); ++head) {
        if (unit++ % n_threads == thread) job->error->Set(WritePlane(part, stream, head));
      }
    }
  }
}

}  // namespace kvarn::ggml_plugin
