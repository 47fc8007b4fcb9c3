// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "kv_memory.h"

namespace kvarn::ggml_plugin {
namespace {

class Pages final : public KvMemory {
 public:
  bool IsHost() const override { return true; }
  uint8_t* Map(size_t bytes) override {
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages == MAP_FAILED ? nullptr : static_cast<uint8_t*>(pages);
  }
  void Unmap(uint8_t* memory, size_t bytes) override {
    if (memory != nullptr) munmap(memory, bytes);
  }
  // Fresh pages instead of a memset where whole pages begin: cleared memory is not resident.
  void Zero(uint8_t* memory, size_t bytes) override {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t fresh = reinterpret_cast<uintptr_t>(memory) % page == 0 ? bytes / page * page : 0;
    if (fresh > 0 && madvise(memory, fresh, MADV_DONTNEED) != 0) fresh = 0;
    std::memset(memory + fresh, 0, bytes - fresh);
  }
  void Copy(uint8_t* to, const uint8_t* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Store(uint8_t* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void Load(void* to, const uint8_t* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void LoadPieces(void* to, const uint8_t* from, size_t stride, size_t bytes, size_t n) override {
    for (size_t i = 0; i < n; ++i)
      Load(static_cast<uint8_t*>(to) + i * bytes, from + i * stride, bytes);
  }
};

}  // namespace

KvMemory* HostMemory() {
  static Pages pages;
  return &pages;
}

}  // namespace kvarn::ggml_plugin
