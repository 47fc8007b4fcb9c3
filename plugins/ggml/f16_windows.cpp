// SPDX-License-Identifier: Apache-2.0
#include "f16_windows.h"

#include <algorithm>
#include <vector>

namespace kvarn::ggml_plugin {

F16Windows::~F16Windows() {
  for (int i = 0; i < n_; ++i)
    memory_->Unmap(windows_[i].data, windows_[i].end - windows_[i].begin);
}

F16Windows::Window* F16Windows::Find(const KvTensor* kv) {
  for (int i = 0; i < n_; ++i) {
    if (windows_[i].kv == kv) return &windows_[i];
  }
  return nullptr;
}

// Make room for what `tensor` covers if it lies in a cache.
void F16Windows::Cover(const ggml_tensor* tensor) {
  KvTensor* kv = FindKv(tensor);
  if (kv == nullptr) return;
  kv->EnsureLayout();
  const size_t row = kv->row_bytes();
  const size_t begin = tensor->view_offs / row * row;
  const size_t end = (tensor->view_offs + Host().ggml_nbytes(tensor) + row - 1) / row * row;
  Window* window = Find(kv);
  if (window == nullptr) {
    window = &windows_[n_++];
    *window = {kv, begin, end, nullptr};
  }
  window->begin = std::min(window->begin, begin);
  window->end = std::max(window->end, end);
}

kvarn_status F16Windows::Fill(Window* window) {
  const size_t bytes = window->end - window->begin;
  window->data = memory_->Map(bytes);
  if (window->data == nullptr) return KVARN_ERROR_MEMORY;
  if (memory_->IsHost()) return window->kv->Read(window->begin, bytes, window->data);
  std::vector<uint8_t> rows(bytes);
  const kvarn_status status = window->kv->Read(window->begin, bytes, rows.data());
  if (status == KVARN_OK) memory_->Store(window->data, rows.data(), bytes);
  return status;
}

// Let a copy of a tensor that lies in a cache point into the window.
void F16Windows::Redirect(ggml_tensor* tensor) {
  if (const KvTensor* kv = FindKv(tensor)) {
    const Window* window = Find(kv);
    tensor->data = window->data + (tensor->view_offs - window->begin);
  }
}

kvarn_status F16Windows::Open(const ggml_tensor& node, ggml_tensor* copy,
                              ggml_tensor (&sources)[GGML_MAX_SRC]) {
  Cover(&node);
  for (const ggml_tensor* source : node.src) {
    if (source != nullptr) Cover(source);
  }
  for (int i = 0; i < n_; ++i) {
    const kvarn_status status = Fill(&windows_[i]);
    if (status != KVARN_OK) return status;
  }
  *copy = node;
  for (int i = 0; i < GGML_MAX_SRC; ++i) {
    if (node.src[i] == nullptr) continue;
    sources[i] = *node.src[i];
    Redirect(&sources[i]);
    copy->src[i] = &sources[i];
  }
  Redirect(copy);
  return KVARN_OK;
}

kvarn_status F16Windows::WriteBack(const ggml_tensor& node) {
  KvTensor* kv = FindKv(&node);
  if (kv == nullptr) return KVARN_OK;
  const Window* window = Find(kv);
  const size_t bytes = window->end - window->begin;
  if (memory_->IsHost()) return kv->Write(window->begin, bytes, window->data);
  std::vector<uint8_t> rows(bytes);
  memory_->Load(rows.data(), window->data, bytes);
  return kv->Write(window->begin, bytes, rows.data());
}

}  // namespace kvarn::ggml_plugin
