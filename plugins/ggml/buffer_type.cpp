// SPDX-License-Identifier: Apache-2.0
//
// The two buffer types of a device. The default type is the inner device's memory; KV caches are
// asked for through it too, and told apart by size (alloc_queries.h).
#include <algorithm>

#include "alloc_queries.h"
#include "buffer.h"
#include "device.h"
#include "log.h"

namespace kvarn::ggml_plugin {
namespace {

constexpr size_t kPlaneAlignment = 64;

size_t InnerSize(const Device& device, const ggml_tensor* tensor) {
  const auto get_alloc_size = device.inner_type->iface.get_alloc_size;
  return get_alloc_size != nullptr ? get_alloc_size(device.inner_type, tensor)
                                   : Host().ggml_nbytes(tensor);
}

AllocQuery Decide(const Device& device, const ggml_tensor* tensor, const AllocQueries& earlier) {
  AllocQuery query;
  query.tensor = tensor;
  query.device = &device;
  query.size = InnerSize(device, tensor);
  KvIdentity identity;
  if (!IdentifyKv(tensor, &identity)) return query;
  query.is_kv = true;
  query.type = tensor->type;
  query.n_rows = tensor->ne[1];
  query.n_streams = tensor->ne[2];
  query.declared_bytes = query.size;
  if (tensor->type != GGML_TYPE_F16 || device.hints.IsLatent(identity.layer)) return query;
  if (ChooseStorage(device.format, query.n_rows, earlier.LargestRows(&device)) == Storage::kPlain) {
    return query;
  }
  query.head_dim = GuessHeadDim(tensor->ne[0], device.hints.HeadDim(identity.layer));
  const size_t bytes = ArenaBytes(device.format, identity.role, query.head_dim, tensor);
  if (bytes == 0) return query;
  query.storage = Storage::kPlanes;
  query.size = bytes;
  return query;
}

// The one line that says what runs: per cache, because only then the sizes are known. Returns
// whether anything is quantised.
bool LogAllocation(const Device& device, const std::vector<AllocQuery>& queries, size_t size) {
  size_t planes = 0, caches = 0, declared = 0, cells = 0;
  for (const AllocQuery& query : queries) {
    if (!query.is_kv) continue;
    ++caches;
    planes += query.storage == Storage::kPlanes ? 1 : 0;
    declared += query.declared_bytes;
    cells = std::max(cells, static_cast<size_t>(query.n_rows * query.n_streams));
  }
  LogInfo(
      "%s (%s, %s%s) on %s: KV cache of %zu tokens, %.2f MiB = %.1f %% of fp16, %.0f bytes a "
      "token; %zu of %zu tensors quantised%s",
      device.preset.c_str(), ModeName(device.format.mode), device.OnGpu() ? "CUDA" : "ISA ",
      device.OnGpu() ? "" : kvarn_isa_name(), device.inner->iface.get_name(device.inner), cells,
      static_cast<double>(size) / 1048576.0,
      100.0 * static_cast<double>(size) / static_cast<double>(declared),
      static_cast<double>(size) / static_cast<double>(cells), planes, caches,
      planes == caches ? "" : ", the others are too small to gain and stay fp16");
  return planes > 0;
}

const char* DefaultName(ggml_backend_buffer_type_t type) {
  return DeviceOf(type)->default_type_name.c_str();
}

const char* KvName(ggml_backend_buffer_type_t type) { return DeviceOf(type)->kv_type_name.c_str(); }

size_t GetAlignment(ggml_backend_buffer_type_t type) {
  ggml_backend_buffer_type_t inner = DeviceOf(type)->inner_type;
  return std::max(kPlaneAlignment, inner->iface.get_alignment(inner));
}

size_t GetMaxSize(ggml_backend_buffer_type_t type) {
  ggml_backend_buffer_type_t inner = DeviceOf(type)->inner_type;
  return inner->iface.get_max_size != nullptr ? inner->iface.get_max_size(inner) : SIZE_MAX;
}

size_t DefaultGetAllocSize(ggml_backend_buffer_type_t type, const ggml_tensor* tensor) {
  AllocQueries& queries = AllocQueries::OfThisThread();
  const AllocQuery query = Decide(*DeviceOf(type), tensor, queries);
  queries.Add(query);
  return query.size;
}

size_t KvGetAllocSize(ggml_backend_buffer_type_t type, const ggml_tensor* tensor) {
  KvIdentity identity;
  if (IdentifyKv(tensor, &identity)) {
    const AllocQuery* query = AllocQueries::OfThisThread().Find(DeviceOf(type), tensor);
    if (query != nullptr) return query->size;
  }
  return InnerSize(*DeviceOf(type), tensor);
}

ggml_backend_buffer_t AllocPlain(Device* device, size_t size) {
  ggml_backend_buffer_t buffer = device->inner_type->iface.alloc_buffer(device->inner_type, size);
  // CUDA's own code compares the type of its buffers; they stay what they are.
  if (buffer != nullptr && !device->OnGpu()) buffer->buft = &device->default_type;
  return buffer;
}

ggml_backend_buffer_t DefaultAllocBuffer(ggml_backend_buffer_type_t type, size_t size) {
  Device* device = DeviceOf(type);
  AllocQueries& queries = AllocQueries::OfThisThread();
  const std::vector<AllocQuery> match = queries.Match(device, size, GetAlignment(type));
  if (match.empty()) {
    queries.Add(AllocQuery());  // whatever comes next belongs to something else
    return AllocPlain(device, size);
  }
  for (const AllocQuery& query : match) {
    if (!query.is_kv || query.type == GGML_TYPE_F16) continue;
    LogError(
        "the KV cache was declared %s, but device %s chooses the KV format itself: remove "
        "-ctk/-ctv (--cache-type-k/--cache-type-v)",
        Host().ggml_type_name(query.type), device->name.c_str());
    return nullptr;
  }
  ggml_backend_buffer_t buffer = NewKvBuffer(device, size);
  if (buffer == nullptr) return nullptr;
  const bool quantised = LogAllocation(*device, match, size);
  if (!quantised && match.front().n_rows >= queries.LargestRows(device)) {
    LogWarn(
        "this context of %lld tokens stays fp16: exact tiles would make up most of its cache "
        "(KVARN_SLIDING=on quantises it all the same)",
        static_cast<long long>(match.front().n_rows));
  }
  return buffer;
}

ggml_backend_buffer_t KvAllocBuffer(ggml_backend_buffer_type_t type, size_t size) {
  return NewKvBuffer(DeviceOf(type), size);  // a checkpoint's copies
}

// Nothing may throw into the host.
template <auto function, typename Result, typename... Arguments>
Result NoThrow(Arguments... arguments) {
  try {
    return function(arguments...);
  } catch (...) {
    LogError("out of memory");
    return Result();
  }
}

bool IsHost(ggml_backend_buffer_type_t) { return true; }

}  // namespace

void InitBufferTypes(Device* device) {
  device->default_type_name = device->name + (device->OnGpu() ? "_gpu" : "_host");
  device->default_type.iface = {
      /* .get_name       = */ DefaultName,
      /* .alloc_buffer   = */
      NoThrow<DefaultAllocBuffer, ggml_backend_buffer_t, ggml_backend_buffer_type_t, size_t>,
      /* .get_alignment  = */ GetAlignment,
      /* .get_max_size   = */ GetMaxSize,
      /* .get_alloc_size = */
      NoThrow<DefaultGetAllocSize, size_t, ggml_backend_buffer_type_t, const ggml_tensor*>,
      /* .is_host        = */ device->OnGpu() ? nullptr : IsHost,
  };
  device->default_type.device = &device->ggml;
  device->default_type.context = device;

  device->kv_type_name = device->name;
  device->kv_type.iface = {
      /* .get_name       = */ KvName,
      /* .alloc_buffer   = */ KvAllocBuffer,
      /* .get_alignment  = */ GetAlignment,
      /* .get_max_size   = */ GetMaxSize,
      /* .get_alloc_size = */ KvGetAllocSize,
      /* .is_host        = */ nullptr,  // not host memory: ggml must not copy raw bytes
  };
  device->kv_type.device = &device->ggml;
  device->kv_type.context = device;
}

bool IsDefaultType(ggml_backend_buffer_type_t type) { return type->iface.get_name == DefaultName; }

bool IsKvType(ggml_backend_buffer_type_t type) { return type->iface.get_name == KvName; }

}  // namespace kvarn::ggml_plugin
