// SPDX-License-Identifier: Apache-2.0
//
// Our stream on a GPU beside that of the host's CUDA backend, in one order: what one of them is
// given after a switch begins when all that the other was given before has ended.
//
// The host's stream is private to its backend. Events of ggml wrap a cudaEvent_t in its CUDA
// backend, in all versions of the window that host.cpp accepts; so either side can record and await
// them.
#ifndef KVARN_PLUGINS_GGML_CUDA_HANDOFF_H_
#define KVARN_PLUGINS_GGML_CUDA_HANDOFF_H_

#include <cuda_runtime_api.h>

#include "cuda/device_memory.h"
#include "cuda/succeeded.h"
#include "device.h"

namespace kvarn::ggml_plugin {

class Handoff {
 public:
  Handoff(const Device* device, ggml_backend_t inner)
      : inner_(inner),
        gpu_(device->gpu),
        to_ours_(device->inner->iface.event_new(device->inner)),
        to_inner_(device->inner->iface.event_new(device->inner)) {
    cudaSetDevice(device->gpu);
    if (Succeeded(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) &&
        Succeeded(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking)) &&
        Succeeded(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming)) &&
        Succeeded(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming)) &&
        Succeeded(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming))) {
      Follow(gpu_, done_);
    }
  }
  ~Handoff() {
    if (done_ != nullptr) {
      Unfollow(gpu_, done_);
      cudaEventDestroy(done_);
    }
    for (cudaEvent_t event : {fork_, join_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    for (cudaStream_t stream : {stream_, side_}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
    for (ggml_backend_event_t event : {to_ours_, to_inner_}) {
      if (event != nullptr) event->device->iface.event_free(event->device, event);
    }
  }
  Handoff(const Handoff&) = delete;
  Handoff& operator=(const Handoff&) = delete;

  bool Ok() const { return done_ != nullptr && to_ours_ != nullptr && to_inner_ != nullptr; }
  cudaStream_t stream() const { return stream_; }

  void ToOurs() {
    if (ours_) return;
    inner_->iface.event_record(inner_, to_ours_);
    cudaStreamWaitEvent(stream_, EventOf(to_ours_), 0);
    ours_ = true;
  }
  void ToInner() {
    if (!ours_) return;
    Join();
    cudaEventRecord(EventOf(to_inner_), stream_);
    inner_->iface.event_wait(inner_, to_inner_);
    ours_ = false;
  }
  // From here on a stream beside ours may begin; Fork gives it work, which goes on beside ours
  // until Join or the next switch.
  void MayFork() { cudaEventRecord(fork_, stream_); }
  cudaStream_t Fork() {
    cudaStreamWaitEvent(side_, fork_, 0);
    forked_ = true;
    return side_;
  }
  void Join() {
    if (!forked_) return;
    cudaEventRecord(join_, side_);
    cudaStreamWaitEvent(stream_, join_, 0);
    forked_ = false;
  }
  // What touches caches from elsewhere waits for the work on our stream up to here. Not while that
  // is recorded.
  void MarkDone() { cudaEventRecord(done_, stream_); }
  // All work has ended; the inner backend is next.
  void Synchronize() {
    ToInner();
    inner_->iface.synchronize(inner_);
  }

 private:
  static cudaEvent_t EventOf(ggml_backend_event_t event) {
    return static_cast<cudaEvent_t>(event->context);
  }

  ggml_backend_t inner_;
  int gpu_;
  ggml_backend_event_t to_ours_, to_inner_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t side_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t join_ = nullptr;
  cudaEvent_t done_ = nullptr;  // behind the last graph's work on our stream
  bool ours_ = false;
  bool forked_ = false;
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_CUDA_HANDOFF_H_
