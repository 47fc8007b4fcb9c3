// SPDX-License-Identifier: Apache-2.0
//
// A block of device memory that grows to what it is asked for. What the GPU still does with the old
// one ends first: freeing waits.
#ifndef KVARN_PLUGINS_GGML_CUDA_DEVICE_BLOCK_H_
#define KVARN_PLUGINS_GGML_CUDA_DEVICE_BLOCK_H_

#include <atomic>

#include "kv_memory.h"

namespace kvarn::ggml_plugin {

class DeviceBlock {
 public:
  explicit DeviceBlock(KvMemory* memory) : memory_(memory) {}
  ~DeviceBlock() { memory_->Unmap(data_, bytes_); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  DeviceBlock(DeviceBlock&& other) noexcept
      : memory_(other.memory_), data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
    other.bytes_ = 0;
  }
  DeviceBlock& operator=(DeviceBlock&&) = delete;

  // At least `bytes`; null if memory is short. Half as much again, so that a context that grows
  // row by row rarely asks.
  uint8_t* Get(size_t bytes) {
    if (bytes > bytes_) {
      if (data_ != nullptr) Count().fetch_add(1, std::memory_order_relaxed);
      memory_->Unmap(data_, bytes_);
      bytes_ = bytes + bytes / 2;
      data_ = memory_->Map(bytes_);
      if (data_ == nullptr) bytes_ = 0;
    }
    return data_;
  }

  // Of all blocks: who has noted down where blocks lie asks whether it still is so.
  static uint64_t Moves() { return Count().load(std::memory_order_relaxed); }

 private:
  static std::atomic<uint64_t>& Count() {
    static std::atomic<uint64_t> moves{0};
    return moves;
  }

  KvMemory* memory_;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_DEVICE_BLOCK_H_
