// SPDX-License-Identifier: Apache-2.0
//
// Sealing, reopening and reading tiles allocates nothing once a thread has done it before: a host
// writes rows between tokens, on threads that must not wait for an allocator.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "kvarn/kvarn.h"
#include "support/isa.h"
#include "support/plane_block.h"
#include "support/random.h"

namespace {
std::atomic<int64_t> allocations{0};

void* Allocate(size_t bytes, size_t alignment) {
  allocations += 1;
  const size_t unit = alignment < sizeof(void*) ? sizeof(void*) : alignment;
  void* memory = std::aligned_alloc(unit, (bytes + unit) / unit * unit);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// The array forms of the standard library call these; its nothrow form does too, but not that of
// the address sanitizer.
void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return Allocate(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace kvarn_test {
namespace {

constexpr int kDim = 128;
constexpr int kGroup = 64;
constexpr int64_t kRows = int64_t{8} * kGroup;

// Twice round a plane of 8 tiles, a row read back now and then; returns the allocations.
int64_t WriteTwiceRound(const kvarn_plane* plane, Block* block, const std::vector<float>& rows) {
  std::vector<uint16_t> out(kDim);
  const int64_t before = allocations;
  bool ok = true;
  for (int64_t i = 0; i < 2 * kRows; ++i) {
    const float* x = rows.data() + i % kRows * kDim;
    ok = ok && kvarn_plane_write(plane, block->data(), i % kRows, x, x, 1, 0) == KVARN_OK;
    if (i % 50 != 0) continue;
    ok = ok && kvarn_plane_read(plane, block->data(), (i + kRows / 2) % kRows, 1, out.data(),
                                out.size() * sizeof(uint16_t)) == KVARN_OK;
  }
  const int64_t made = allocations - before;
  EXPECT_TRUE(ok);
  return made;
}

TEST(PlaneAllocation, NoneInSteadyState) {
  for (const std::string& isa : AvailableIsas()) {
    const ForcedIsa forced(isa);
    for (const kvarn_role role : {KVARN_KEY, KVARN_VALUE}) {
      kvarn_plane_config config = {};
      config.format = {role, KVARN_BALANCED, KVARN_ORDER_CPU, 4, kGroup, kDim};
      config.n_rows = kRows;
      config.tail_rows = kGroup;
      const PlanePtr plane = MakePlane(config);
      Block block(kvarn_plane_bytes(plane.get()));
      Random random(1);
      std::vector<float> rows;
      for (int64_t i = 0; i < kRows * kDim; ++i) {
        rows.push_back(static_cast<float>(random.Normal()));
      }
      WriteTwiceRound(plane.get(), &block, rows);
      kvarn_plane_stats warm = {};
      kvarn_plane_get_stats(plane.get(), block.data(), &warm);
      EXPECT_EQ(WriteTwiceRound(plane.get(), &block, rows), 0) << isa;
      kvarn_plane_stats stats = {};
      kvarn_plane_get_stats(plane.get(), block.data(), &stats);
      EXPECT_GE(stats.seals - warm.seals, 14U);
      EXPECT_GE(stats.reopens - warm.reopens, 8U);
    }
  }
}

TEST(PlaneAllocation, TheCountCounts) {
  const int64_t before = allocations;
  const std::vector<float> some(100);
  EXPECT_GT(allocations - before, 0) << some.size();
}

}  // namespace
}  // namespace kvarn_test
