// SPDX-License-Identifier: Apache-2.0
//
// Runs the threads of a CTA as coroutines of one thread: each runs until it waits for others. CTAs
// come one after the other. Threads take turns in changing order, so that a missing barrier has
// a chance to show. A warp operation or barrier that not all threads reach is an error,
// though it need not be one on a GPU.
#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "cuda/common/launch_kernel.h"
#include "cuda_runtime.h"

ThreadIndex threadIdx, blockIdx;

namespace {

constexpr size_t kStackBytes = 64 * 1024;
constexpr unsigned kLanes = 32;

// A meeting of `size` threads, any number of times.
struct Meeting {
  unsigned size = 0;
  unsigned arrived = 0;
  uint64_t round = 0;
};

struct Thread {
  ucontext_t context;  // how it begins
  jmp_buf rest;        // where it goes on: a jump, unlike a change of context, calls no kernel
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  bool begun = false;
  bool done = false;
};

class Cta {
 public:
  Cta(const std::function<void()>& kernel, unsigned n_threads)
      : kernel_(kernel), threads_(n_threads), given_(n_threads), taken_(n_threads) {
    all_.size = n_threads;
    warps_.resize((n_threads + kLanes - 1) / kLanes);
    for (Meeting& warp : warps_) warp.size = kLanes;
  }

  void Run() {
    for (Thread& thread : threads_) {
      thread.begun = thread.done = false;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.get();
      thread.context.uc_stack.ss_size = kStackBytes;
      makecontext(&thread.context, &Cta::Enter, 0);
    }
    current_cta = this;
    for (size_t left = threads_.size(); left > 0;) {
      left = 0;
      const uint64_t before = steps_;
      const size_t begin = random_() % threads_.size();
      const bool backward = random_() % 2 != 0;
      for (size_t i = 0; i < threads_.size(); ++i) {
        const size_t after = (begin + i) % threads_.size();
        const auto t = static_cast<unsigned>(backward ? threads_.size() - 1 - after : after);
        if (threads_[t].done) continue;
        threadIdx = {t, 0, 0};
        Resume(&threads_[t]);
        left += threads_[t].done ? 0 : 1;
      }
      if (steps_ == before) Fail("what others wait at");
    }
    if (all_.arrived != 0) Fail("a barrier");
    for (const Meeting& warp : warps_) {
      if (warp.arrived != 0) Fail("a warp operation");
    }
  }

  void Barrier() { Meet(&all_); }
  // What each lane of the warp gave, once all have.
  const uint32_t* Exchange(uint32_t value) {
    const unsigned warp = threadIdx.x / kLanes;
    given_[threadIdx.x] = value;
    if (Meet(&warps_[warp])) {
      std::copy_n(given_.begin() + warp * kLanes, kLanes, taken_.begin() + warp * kLanes);
      Release(&warps_[warp]);
    }
    return &taken_[warp * kLanes];
  }

  static Cta* current_cta;

 private:
  static void Enter() {
    Cta& cta = *current_cta;
    cta.kernel_();
    cta.threads_[threadIdx.x].done = true;
    cta.steps_ += 1;
    _longjmp(cta.scheduler_, 1);
  }
  // Until the thread waits or ends.
  __attribute__((noinline)) void Resume(Thread* thread) {
    if (_setjmp(scheduler_) != 0) return;
    if (thread->begun) _longjmp(thread->rest, 1);
    thread->begun = true;
    setcontext(&thread->context);
  }
  __attribute__((noinline)) void Wait(Thread* thread) {
    if (_setjmp(thread->rest) == 0) _longjmp(scheduler_, 1);
  }
  [[noreturn]] static void Fail(const char* what) {
    std::printf("not all threads reached %s\n", what);
    std::exit(1);
  }
  // True for the last to arrive of a warp, who releases the others; a barrier releases itself.
  bool Meet(Meeting* meeting) {
    const uint64_t round = meeting->round;
    meeting->arrived += 1;
    steps_ += 1;
    if (meeting->arrived == meeting->size) {
      if (meeting != &all_) return true;
      Release(meeting);
      return false;
    }
    while (meeting->round == round) {
      Wait(&threads_[threadIdx.x]);
    }
    return false;
  }
  static void Release(Meeting* meeting) {
    meeting->arrived = 0;
    meeting->round += 1;
  }

  const std::function<void()>& kernel_;
  std::vector<Thread> threads_;
  std::vector<uint32_t> given_, taken_;
  Meeting all_;
  std::vector<Meeting> warps_;
  jmp_buf scheduler_;
  uint64_t steps_ = 0;  // of all threads: arrivals and ends
  static inline std::minstd_rand random_;
};

Cta* Cta::current_cta = nullptr;

}  // namespace

void __syncthreads() { Cta::current_cta->Barrier(); }

namespace kvarn_emulation {

uint32_t Exchange(uint32_t value, unsigned from) { return Cta::current_cta->Exchange(value)[from]; }

uint32_t Ballot(bool value) {
  const uint32_t* given = Cta::current_cta->Exchange(value ? 1 : 0);
  uint32_t bits = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) bits |= given[lane] << lane;
  return bits;
}

}  // namespace kvarn_emulation

void kvarn_emulation::Launch(const std::function<void()>& kernel, dim3 grid, unsigned n_threads) {
  Cta cta(kernel, n_threads);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        cta.Run();
      }
    }
  }
}
