// SPDX-License-Identifier: Apache-2.0
#include "node_attention.h"

#include <cstring>

#include "counters.h"

namespace kvarn::ggml_plugin {
namespace {

// A [D, n, heads, S] view of a cache that begins at row 0, head 0 of stream `stream`; -1 if it is
// anything else.
int64_t FirstStream(const ggml_tensor* view, const KvTensor& kv) {
  const auto dim = static_cast<int64_t>(kv.head_dim());
  const bool whole_heads =
      view->ne[0] == dim && view->ne[2] == kv.n_heads() && view->nb[0] == sizeof(uint16_t) &&
      view->nb[1] == kv.row_bytes() &&
      (view->ne[2] == 1 || view->nb[2] == static_cast<size_t>(dim) * sizeof(uint16_t)) &&
      (view->ne[3] == 1 || view->nb[3] == kv.stream_bytes());
  if (!whole_heads || view->ne[1] > kv.n_rows() || view->view_offs % kv.stream_bytes() != 0) {
    return -1;
  }
  const auto stream = static_cast<int64_t>(view->view_offs / kv.stream_bytes());
  return stream + view->ne[3] <= kv.n_streams() ? stream : -1;
}

bool FillPlanes(const ggml_tensor* node, AttentionJob* job) {
  kvarn_attention* call = &job->call;
  const ggml_tensor* k = node->src[1];
  const ggml_tensor* v = node->src[2];
  const KvTensor* keys = FindKv(k);
  const KvTensor* values = FindKv(v);
  if (keys == nullptr || values == nullptr || keys == values) return false;
  if (keys->plane() == nullptr || values->plane() == nullptr) return false;
  const int64_t key_stream = FirstStream(k, *keys);
  const int64_t value_stream = FirstStream(v, *values);
  if (key_stream < 0 || value_stream < 0 || k->ne[1] != v->ne[1] || k->ne[2] != v->ne[2] ||
      k->ne[3] != v->ne[3]) {
    return false;
  }
  call->key_plane = keys->plane();
  call->value_plane = values->plane();
  call->keys = keys->PlaneMemory(key_stream, 0);
  call->values = values->PlaneMemory(value_stream, 0);
  call->key_head_stride = keys->head_stride();
  call->key_stream_stride = keys->stream_stride();
  call->value_head_stride = values->head_stride();
  call->value_stream_stride = values->stream_stride();
  call->n_kv_heads = keys->n_heads();
  call->n_rows = k->ne[1];
  job->keys = keys;
  job->values = values;
  job->key_tokens.first_stream = key_stream;
  job->value_tokens.first_stream = value_stream;
  return true;
}

bool FillQuery(const ggml_tensor* node, kvarn_attention* call) {
  const ggml_tensor* q = node->src[0];
  if (q->type != GGML_TYPE_F32 || q->nb[0] != sizeof(float) || node->type != GGML_TYPE_F32 ||
      node->nb[0] != sizeof(float) || q->ne[0] != node->src[1]->ne[0] ||
      q->ne[3] != node->src[1]->ne[3] || q->ne[2] % call->n_kv_heads != 0) {
    return false;
  }
  call->n_tokens = static_cast<int32_t>(q->ne[1]);
  call->n_heads = static_cast<int32_t>(q->ne[2]);
  call->n_streams = static_cast<int32_t>(q->ne[3]);
  call->query = static_cast<const float*>(q->data);
  call->query_token_stride = q->nb[1];
  call->query_head_stride = q->nb[2];
  call->query_stream_stride = q->nb[3];
  // The result is [Dv, heads, T, S].
  call->out = static_cast<float*>(node->data);
  call->out_head_stride = node->nb[1];
  call->out_token_stride = node->nb[2];
  call->out_stream_stride = node->nb[3];
  return true;
}

bool FillMask(const ggml_tensor* node, kvarn_attention* call) {
  const ggml_tensor* mask = node->src[3];
  if (mask == nullptr) return true;
  if (mask->type != GGML_TYPE_F16 || mask->nb[0] != sizeof(uint16_t) ||
      mask->ne[0] < call->n_rows || mask->ne[1] < call->n_tokens) {
    return false;
  }
  call->mask = static_cast<const uint16_t*>(mask->data);
  call->mask_heads = static_cast<int32_t>(mask->ne[2]);
  call->mask_streams = static_cast<int32_t>(mask->ne[3]);
  call->mask_token_stride = mask->nb[1];
  call->mask_head_stride = mask->nb[2];
  call->mask_stream_stride = mask->nb[3];
  return true;
}

void LearnFromView(const ggml_tensor* view, KvTensor* kv) {
  if (kv != nullptr && view->ne[0] * view->ne[2] == kv->n_embd()) {
    kv->SetHeadDim(static_cast<int32_t>(view->ne[0]));
  }
}

}  // namespace

void LearnHeadDim(const ggml_tensor* op) {
  if (op->op != GGML_OP_FLASH_ATTN_EXT) return;
  KvTensor* keys = FindKv(op->src[1]);
  KvTensor* values = FindKv(op->src[2]);
  LearnFromView(op->src[1], keys);
  if (values != keys) LearnFromView(op->src[2], values);
}

bool FillAttention(const ggml_tensor* node, AttentionJob* job) {
  *job = {};
  kvarn_attention* call = &job->call;
  if (!FillPlanes(node, job) || !FillQuery(node, call) || !FillMask(node, call)) return false;
  for (TokenShape* tokens : {&job->key_tokens, &job->value_tokens}) {
    tokens->n_streams = call->n_streams;
    tokens->n_tokens = call->n_tokens;
  }
  std::memcpy(&call->scale, &node->op_params[0], sizeof(float));
  std::memcpy(&call->max_bias, &node->op_params[1], sizeof(float));
  std::memcpy(&call->softcap, &node->op_params[2], sizeof(float));
  if (const ggml_tensor* sinks = node->src[4]) call->sinks = static_cast<const float*>(sinks->data);
  return true;
}

bool PlanAttention(const ggml_tensor* node, int n_threads, AttentionJob* job) {
  if (!FillAttention(node, job)) return false;
  const kvarn_attention* call = &job->call;
  job->n_shares = n_threads;
  job->workspace_bytes = kvarn_attention_workspace_bytes(call, n_threads);
  return job->workspace_bytes != 0;
}

void UseCopies(const RecentBlock& keys, const RecentBlock& values, kvarn_attention* call) {
  call->key_recent = keys.memory;
  call->key_recent_head_stride = keys.head_stride;
  call->key_recent_stream_stride = keys.stream_stride;
  call->value_recent = values.memory;
  call->value_recent_head_stride = values.head_stride;
  call->value_recent_stream_stride = values.stream_stride;
}

kvarn_status BeginAttention(AttentionJob* job) {
  const kvarn_status status = kvarn_attention_begin(&job->call, job->workspace, job->n_shares);
  job->begun = status == KVARN_OK;
  return status;
}

void RunAttention(ggml_tensor*, int thread, int n_threads, void* userdata) {
  const auto* job = static_cast<const AttentionJob*>(userdata);
  if (!job->begun) return;
  for (int share = thread; share < job->n_shares; share += n_threads) {
    kvarn_attention_run(&job->call, job->workspace, share, job->n_shares);
  }
  if (thread == 0) counters.attention_calls.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace kvarn::ggml_plugin
