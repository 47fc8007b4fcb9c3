// SPDX-License-Identifier: Apache-2.0
//
// The memory that KV caches lie in: the host's, or a GPU's. Calls return when they are done, and
// begin when kernels of our backends that have been enqueued before are done with the memory: ggml
// synchronises backends before it reads or writes tensors, but not before it clears a cache.
#ifndef KVARN_PLUGINS_GGML_KV_MEMORY_H_
#define KVARN_PLUGINS_GGML_KV_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace kvarn::ggml_plugin {

class KvMemory {
 public:
  virtual ~KvMemory() = default;

  virtual bool IsHost() const = 0;
  // Zeroed memory, null if it is short; given back with Unmap (null is allowed).
  virtual uint8_t* Map(size_t bytes) = 0;
  virtual void Unmap(uint8_t* memory, size_t bytes) = 0;
  virtual void Zero(uint8_t* memory, size_t bytes) = 0;
  virtual void Copy(uint8_t* to, const uint8_t* from, size_t bytes) = 0;  // no overlap
  // From and to the host's memory.
  virtual void Store(uint8_t* to, const void* from, size_t bytes) = 0;
  virtual void Load(void* to, const uint8_t* from, size_t bytes) = 0;
  // n pieces of `bytes`, `stride` apart, that lie one behind the other then: at once, since each
  // call waits for a GPU.
  virtual void LoadPieces(void* to, const uint8_t* from, size_t stride, size_t bytes, size_t n) = 0;
};

// Pages of the host that are not resident until touched.
KvMemory* HostMemory();

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_KV_MEMORY_H_
