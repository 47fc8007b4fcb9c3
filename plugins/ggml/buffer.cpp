// SPDX-License-Identifier: Apache-2.0
#include "buffer.h"

#include <cstring>
#include <memory>
#include <vector>

#include "alloc_queries.h"
#include "counters.h"
#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

struct KvBuffer {
  Device* device = nullptr;
  uint8_t* base = nullptr;
  size_t size = 0;
  std::vector<std::unique_ptr<KvTensor>> tensors;

  ~KvBuffer() {
    tensors.clear();
    device->memory->Unmap(base, size);
  }
};

KvBuffer* BufferOf(ggml_backend_buffer_t buffer) { return static_cast<KvBuffer*>(buffer->context); }

void LogStats(const KvBuffer& buffer) {
  if (buffer.tensors.empty()) return;
  kvarn_plane_stats total = {};
  for (const auto& tensor : buffer.tensors) tensor->AddStats(&total);
  LogInfo("%s: closing: %s", buffer.device->name.c_str(), Describe(total).c_str());
}

void FreeBuffer(ggml_backend_buffer_t buffer) {
  KvBuffer* kv_buffer = BufferOf(buffer);
  LogStats(*kv_buffer);
  delete kv_buffer;
}

void* GetBase(ggml_backend_buffer_t buffer) { return BufferOf(buffer)->base; }

// Runs `body` and turns an exception (memory is short) into `failed`.
template <typename Result, typename Body>
Result Guard(Result failed, Body body) {
  try {
    return body();
  } catch (...) {
    LogError("out of memory");
    return failed;
  }
}

ggml_status InitTensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor) {
  KvIdentity identity;
  if (tensor->view_src != nullptr || !IdentifyKv(tensor, &identity)) return GGML_STATUS_SUCCESS;
  KvBuffer* kv_buffer = BufferOf(buffer);
  const AllocQuery* query = AllocQueries::OfThisThread().Find(kv_buffer->device, tensor);
  if (query == nullptr || query->storage == Storage::kPlain) return GGML_STATUS_SUCCESS;
  return Guard(GGML_STATUS_ALLOC_FAILED, [&] {
    kv_buffer->tensors.push_back(std::make_unique<KvTensor>(
        kv_buffer->device->format, identity, tensor, kv_buffer->device->memory,
        static_cast<uint8_t*>(tensor->data), query->size, query->head_dim));
    tensor->extra = kv_buffer->tensors.back().get();
    return GGML_STATUS_SUCCESS;
  });
}

void Report(const KvTensor* kv, const char* action, kvarn_status status) {
  if (status == KVARN_OK) return;
  LogError("%s: %s failed: %s", kv->name().c_str(), action, kvarn_status_text(status));
}

void SetTensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, size_t offset,
               size_t size) {
  KvTensor* kv = FindKv(tensor);
  if (kv == nullptr) {
    KvMemory* memory = BufferOf(buffer)->device->memory;
    memory->Store(static_cast<uint8_t*>(tensor->data) + offset, data, size);
    return;
  }
  Report(kv, "writing", Guard(KVARN_ERROR_MEMORY, [&] {
           return kv->Write(tensor->view_offs + offset, size, data);
         }));
}

void GetTensor(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data, size_t offset,
               size_t size) {
  const KvTensor* kv = FindKv(tensor);
  if (kv == nullptr) {
    KvMemory* memory = BufferOf(buffer)->device->memory;
    memory->Load(data, static_cast<const uint8_t*>(tensor->data) + offset, size);
    return;
  }
  Report(kv, "reading", Guard(KVARN_ERROR_MEMORY, [&] {
           return kv->Read(tensor->view_offs + offset, size, data);
         }));
}

void MemsetTensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, uint8_t value, size_t offset,
                  size_t size) {
  KvTensor* kv = FindKv(tensor);
  if (kv == nullptr) {
    Guard(false, [&] {
      const std::vector<uint8_t> bytes(size, value);
      SetTensor(buffer, tensor, bytes.data(), offset, size);
      return true;
    });
    return;
  }
  const size_t begin = tensor->view_offs + offset;
  if (value == 0 && begin % kv->stream_bytes() == 0 && size % kv->stream_bytes() == 0) {
    for (size_t at = begin; at < begin + size; at += kv->stream_bytes()) {
      kv->ClearStream(static_cast<int64_t>(at / kv->stream_bytes()));
    }
    return;
  }
  Report(kv, "filling", Guard(KVARN_ERROR_MEMORY, [&] {
           const std::vector<uint8_t> bytes(size, value);
           return kv->Write(begin, size, bytes.data());
         }));
}

bool CopyTensor(ggml_backend_buffer_t buffer, const ggml_tensor* source, ggml_tensor* target) {
  const size_t size = Host().ggml_nbytes(source);
  const KvTensor* from = FindKv(source);
  KvTensor* to = FindKv(target);
  if (from != nullptr && to != nullptr) {
    return Guard(false, [&] {
      return KvTensor::CopyStreams(*from, source->view_offs, to, target->view_offs, size);
    });
  }
  ggml_backend_buffer_t source_buffer = Root(source)->buffer;
  KvMemory* memory = BufferOf(buffer)->device->memory;
  if (!IsKvBuffer(source_buffer) || BufferOf(source_buffer)->device->memory != memory) {
    return false;  // ggml goes through SetTensor
  }
  if (from == nullptr && to == nullptr) {
    memory->Copy(static_cast<uint8_t*>(target->data), static_cast<const uint8_t*>(source->data),
                 size);
    return true;
  }
  return Guard(false, [&] {
    std::vector<uint8_t> bytes(size);
    GetTensor(source_buffer, source, bytes.data(), 0, size);
    SetTensor(buffer, target, bytes.data(), 0, size);
    return true;
  });
}

void Clear(ggml_backend_buffer_t buffer, uint8_t value) {
  KvBuffer* kv_buffer = BufferOf(buffer);
  KvMemory* memory = kv_buffer->device->memory;
  if (value == 0 || !kv_buffer->tensors.empty()) {
    memory->Zero(kv_buffer->base, kv_buffer->size);
  } else {
    Guard(false, [&] {
      const std::vector<uint8_t> bytes(kv_buffer->size, value);
      memory->Store(kv_buffer->base, bytes.data(), bytes.size());
      return true;
    });
  }
  for (const auto& tensor : kv_buffer->tensors) tensor->Clear(true);
}

void Reset(ggml_backend_buffer_t buffer) { Clear(buffer, 0); }

constexpr ggml_backend_buffer_i kInterface = {
    /* .free_buffer   = */ FreeBuffer,
    /* .get_base      = */ GetBase,
    /* .init_tensor   = */ InitTensor,
    /* .memset_tensor = */ MemsetTensor,
    /* .set_tensor    = */ SetTensor,
    /* .get_tensor    = */ GetTensor,
    /* .set_tensor_2d = */ nullptr,  // ggml loops over the 1-D forms
    /* .get_tensor_2d = */ nullptr,
    /* .cpy_tensor    = */ CopyTensor,
    /* .clear         = */ Clear,
    /* .reset         = */ Reset,
};

}  // namespace

ggml_backend_buffer_t NewKvBuffer(Device* device, size_t size) {
  return Guard(static_cast<ggml_backend_buffer_t>(nullptr), [&]() -> ggml_backend_buffer_t {
    auto kv_buffer = std::make_unique<KvBuffer>();
    kv_buffer->device = device;
    kv_buffer->base = device->memory->Map(size);
    kv_buffer->size = size;
    if (kv_buffer->base == nullptr) return nullptr;
    return Host().ggml_backend_buffer_init(&device->kv_type, kInterface, kv_buffer.release(), size);
  });
}

bool IsKvBuffer(ggml_backend_buffer_t buffer) {
  return buffer != nullptr && buffer->iface.free_buffer == FreeBuffer;
}

KvTensor* FindKv(const ggml_tensor* tensor) {
  const ggml_tensor* root = Root(tensor);
  return IsKvBuffer(root->buffer) ? static_cast<KvTensor*>(root->extra) : nullptr;
}

}  // namespace kvarn::ggml_plugin
