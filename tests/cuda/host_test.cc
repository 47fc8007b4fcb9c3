// SPDX-License-Identifier: Apache-2.0
//
// What of the CUDA part runs without a GPU: how work is cut into shares, and how wrong calls are
// answered.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cuda/attention/params.h"

namespace {

using namespace kvarn::cuda;

// Every unit falls to one CTA, and no CTA gets more than its share and one unit.
TEST(DecodeShares, CoverAllUnitsOnceAndEvenly) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int n_ctas = 1 + static_cast<int>(random() % 140);
    const int segment_cost = static_cast<int>(random() % 200);
    const int n_segments = 1 + static_cast<int>(random() % 60);
    std::vector<int> count(static_cast<size_t>(n_segments));
    std::vector<int> cost(count.size());
    std::vector<int64_t> prefix(count.size());
    int64_t total = 0;
    for (size_t s = 0; s < count.size(); ++s) {
      count[s] = random() % 4 == 0 ? 0 : static_cast<int>(random() % 300);
      cost[s] = 50 + static_cast<int>(random() % 300);
      prefix[s] = total;
      total += count[s] == 0 ? 0 : segment_cost + static_cast<int64_t>(count[s]) * cost[s];
    }
    const int dearest = *std::max_element(cost.begin(), cost.end());
    std::vector<int64_t> load(static_cast<size_t>(n_ctas));
    for (size_t s = 0; s < count.size(); ++s) {
      int next = 0;
      for (int cta = 0; cta < n_ctas; ++cta) {
        const int64_t begin = prefix[s] + segment_cost;
        const int from =
            FirstUnitAtOrAfter(ShareBegin(total, cta, n_ctas), begin, cost[s], count[s]);
        const int to =
            FirstUnitAtOrAfter(ShareBegin(total, cta + 1, n_ctas), begin, cost[s], count[s]);
        ASSERT_EQ(from, next);
        ASSERT_GE(to, from);
        next = to;
        load[static_cast<size_t>(cta)] += static_cast<int64_t>(to - from) * cost[s];
      }
      ASSERT_EQ(next, count[s]);
    }
    for (const int64_t l : load) EXPECT_LE(l, total / n_ctas + dearest + 1);
  }
}

TEST(DecodeRows, TokenIsTheQuotient) {
  for (int heads = 1; heads <= kMaxQueryRows; ++heads) {
    DecodeParams p = {};
    p.row_to_token = RowToToken(heads);
    for (int row = 0; row < kMaxQueryRows; ++row) ASSERT_EQ(TokenOfRow(p, row), row / heads);
  }
}

TEST(DecodeCall, WrongCallsAreAnswered) {
  EXPECT_EQ(kvarn_cuda_decode_check(nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_decode_run(nullptr, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_decode_workspace_bytes(nullptr), 0U);
  kvarn_cuda_decode call = {};
  call.key_format = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CPU, 4, 128, 128};
  call.value_format = {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, 2, 128, 128};
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_FORMAT);
  call.key_format.order = KVARN_ORDER_CUDA;
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_ARGUMENT);
  call.n_sequences = call.n_tokens = call.n_kv_heads = 1;
  call.n_heads = 8;
  call.ring_rows = 256;
  call.scale = 0.1F;
  call.n_heads = 200;  // no kernel takes that many query rows, on any machine
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_UNSUPPORTED);
  call.ring_rows = 100;
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_ARGUMENT);
  // With a table of tiles there is no ring, and positions are not those of a sequence.
  const int32_t table = KVARN_CUDA_TILE_EMPTY;
  call.tile_table = &table;
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_ARGUMENT);  // stride 0
  call.tile_table_stride = 1;
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_UNSUPPORTED);
  call.max_bias = 8.0F;
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_ARGUMENT);
  const uint16_t mask = 0;
  call.mask = &mask;
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_UNSUPPORTED);
  call.window = 10;
  EXPECT_EQ(kvarn_cuda_decode_check(&call), KVARN_ERROR_ARGUMENT);
}

// A legal call answers that there is no kernel for it, on any machine.
TEST(DecodeCall, TypesStridesAndMapsAreChecked) {
  kvarn_cuda_decode call = {};
  call.key_format = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128};
  call.value_format = {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, 2, 128, 128};
  call.n_sequences = call.n_tokens = call.n_kv_heads = 1;
  call.n_heads = 200;
  call.ring_rows = 256;
  call.scale = 0.1F;
  const auto with = [&](auto change) {
    kvarn_cuda_decode changed = call;
    change(changed);
    return kvarn_cuda_decode_check(&changed);
  };
  EXPECT_EQ(with([](auto&) {}), KVARN_ERROR_UNSUPPORTED);  // fp16 throughout
  EXPECT_EQ(with([](auto& c) { c.dtype = KVARN_BF16; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.dtype = c.query_dtype = KVARN_BF16; }), KVARN_ERROR_UNSUPPORTED);
  EXPECT_EQ(with([](auto& c) { c.query_dtype = KVARN_FP32; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.key_sequence_stride = 16; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.exact_value_sequence_stride = 16; }), KVARN_ERROR_ARGUMENT);
  const uint8_t map = 0;
  EXPECT_EQ(with([&](auto& c) { c.mask_map = &map, c.mask_map_stride = 1; }), KVARN_ERROR_ARGUMENT);
  const int32_t table = KVARN_CUDA_TILE_EMPTY;
  const uint16_t mask = 0;
  call.tile_table = &table;
  call.tile_table_stride = 1;
  call.query_dtype = KVARN_FP32;
  call.key_sequence_stride = call.exact_value_sequence_stride = 16;
  EXPECT_EQ(with([](auto&) {}), KVARN_ERROR_UNSUPPORTED);
  EXPECT_EQ(with([](auto& c) { c.dtype = KVARN_BF16; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([&](auto& c) { c.mask_map = &map, c.mask_map_stride = 1; }), KVARN_ERROR_ARGUMENT);
  call.mask = &mask;
  EXPECT_EQ(with([&](auto& c) { c.mask_map = &map; }), KVARN_ERROR_ARGUMENT);  // stride 0
  EXPECT_EQ(with([&](auto& c) { c.mask_map = &map, c.mask_map_stride = 1; }),
            KVARN_ERROR_UNSUPPORTED);
}

TEST(MaskMapCall, WrongCallsAreAnswered) {
  const uint16_t mask[4] = {};
  uint8_t map = 0;
  const auto status = [&](const uint16_t* from, int64_t stride, int n_tokens, int group,
                          uint8_t* to) {
    return kvarn_cuda_mask_map(from, stride, stride, 1, n_tokens, 4, group, to, nullptr);
  };
  EXPECT_EQ(status(nullptr, 0, 0, 128, nullptr), KVARN_OK);  // nothing to do
  EXPECT_EQ(status(nullptr, 8, 1, 128, &map), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(status(mask, 8, 1, 128, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(status(mask, 7, 1, 128, &map), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(status(mask, 8, -1, 128, &map), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(status(mask, 8, 1, 32, &map), KVARN_ERROR_ARGUMENT);
}

TEST(PrefillCall, WrongCallsAreAnswered) {
  EXPECT_EQ(kvarn_cuda_prefill_check(nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_prefill_run(nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  kvarn_cuda_prefill call = {};
  call.attention.key_format = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128};
  call.attention.value_format = {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, 2, 64, 128};
  EXPECT_EQ(kvarn_cuda_prefill_check(&call), KVARN_ERROR_FORMAT);
  call.attention.value_format.group = 128;
  EXPECT_EQ(kvarn_cuda_prefill_check(&call), KVARN_ERROR_ARGUMENT);
  call.attention.n_sequences = 2;
  call.attention.n_tokens = 100;
  call.attention.n_heads = call.attention.n_kv_heads = 1;
  call.attention.ring_rows = 256;
  call.attention.scale = 0.1F;
  call.total_tokens = 150;
  call.seal_lag = -1;
  const auto with = [call](auto change) {
    kvarn_cuda_prefill changed = call;
    change(changed);
    return kvarn_cuda_prefill_check(&changed);
  };
  EXPECT_EQ(with([](auto& c) { c.total_tokens = 201; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.total_tokens = -1; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.seal_lag = -2; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.attention.ring_rows = 100; }), KVARN_ERROR_ARGUMENT);
  const int32_t table = KVARN_CUDA_TILE_EMPTY;
  const uint16_t mask = 0;
  const auto with_table = [&](auto change) {
    return with([&](auto& c) {
      c.attention.tile_table = &table;
      c.attention.tile_table_stride = 1;
      c.attention.mask = &mask;
      c.attention.key_format.head_dim = 48;  // that no kernel has
      c.total_tokens = -1;                   // not read
      change(c);
    });
  };
  EXPECT_EQ(with_table([](auto&) {}), KVARN_ERROR_UNSUPPORTED);
  EXPECT_EQ(with_table([](auto& c) { c.attention.query_dtype = KVARN_FP32; }),
            KVARN_ERROR_UNSUPPORTED);
  EXPECT_EQ(with_table([](auto& c) { c.attention.mask = nullptr; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with_table([](auto& c) { c.attention.window = 5; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with_table([](auto& c) { c.seal_lag = 0; }), KVARN_ERROR_ARGUMENT);
  // More blocks than a grid has.
  EXPECT_EQ(with([](auto& c) {
              c.attention.n_tokens = c.total_tokens = 1 << 30;
              c.attention.n_heads = c.attention.n_kv_heads = 1 << 20;
            }),
            KVARN_ERROR_ARGUMENT);
  // A head dim that no kernel has, on any machine.
  EXPECT_EQ(with([](auto& c) { c.attention.key_format.head_dim = 48; }), KVARN_ERROR_UNSUPPORTED);
  // Nothing to do needs no pointers, and no device; else they are asked for.
  call.total_tokens = 0;
  EXPECT_EQ(kvarn_cuda_prefill_run(&call, nullptr), KVARN_OK);
  call.total_tokens = 150;
  EXPECT_EQ(kvarn_cuda_prefill_run(&call, nullptr), KVARN_ERROR_ARGUMENT);
}

TEST(AppendCall, WrongCallsAreAnswered) {
  EXPECT_EQ(kvarn_cuda_append_workspace_bytes(nullptr), 0U);
  EXPECT_EQ(kvarn_cuda_append_plan(nullptr, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_append_run(nullptr, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  kvarn_cuda_append call = {};
  call.key_format = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128};
  call.value_format = {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, 2, 128, 128};
  call.n_sequences = 3;
  call.n_rows = 300;
  call.n_heads = 16;
  call.n_kv_heads = 2;
  call.ring_rows = 256;
  const size_t bytes = kvarn_cuda_append_workspace_bytes(&call);
  EXPECT_GE(bytes, (300 / 128 + 3) * 2 * 2 * sizeof(kvarn_cuda_tile));
  alignas(256) static unsigned char workspace[256];  // pointers are checked before it is used
  const auto with = [&](auto change) {
    kvarn_cuda_append changed = call;
    change(changed);
    return kvarn_cuda_append_run(&changed, workspace, nullptr);
  };
  EXPECT_EQ(with([](auto&) {}), KVARN_ERROR_ARGUMENT);  // no pointers
  EXPECT_EQ(with([](auto& c) { c.key_format.order = KVARN_ORDER_CPU; }), KVARN_ERROR_FORMAT);
  EXPECT_EQ(with([](auto& c) { c.value_format.group = 64; }), KVARN_ERROR_FORMAT);
  EXPECT_EQ(with([](auto& c) { c.ring_rows = 128; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.ring_rows = 300; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.tail_rows = 1; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.n_heads = 15; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.n_rows = -1; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.balance_tile = -1; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(with([](auto& c) { c.n_heads = 34; }), KVARN_ERROR_UNSUPPORTED);
  EXPECT_EQ(with([](auto& c) { c.key_format.head_dim = 320; }), KVARN_ERROR_UNSUPPORTED);
}

TEST(AppendCall, EveryChunkOfARingHasAnEntry) {
  alignas(256) static unsigned char somewhere[256];  // no rows: nothing is read
  kvarn_cuda_append call = {};
  call.key_format = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128};
  call.value_format = {KVARN_VALUE, KVARN_BALANCED, KVARN_ORDER_CUDA, 2, 128, 128};
  call.n_sequences = call.n_heads = call.n_kv_heads = 1;
  call.ring_rows = 384;
  const auto* numbers = reinterpret_cast<const int32_t*>(somewhere);
  call.row_begin = call.lengths = call.block_table = call.ring_base = numbers;
  call.new_keys = call.new_values = somewhere;
  call.key_records = call.value_records = call.exact_keys = call.exact_values = somewhere;
  call.ring_base_stride = 3;
  EXPECT_EQ(kvarn_cuda_append_run(&call, somewhere, nullptr), KVARN_OK);
  call.ring_base_stride = 2;
  EXPECT_EQ(kvarn_cuda_append_run(&call, somewhere, nullptr), KVARN_ERROR_ARGUMENT);
}

TEST(PlaneWriteCall, WrongCallsAreAnswered) {
  EXPECT_EQ(kvarn_cuda_planes_write(nullptr, 1, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  kvarn_plane_config config = {
      {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CPU, 4, 128, 128}, 1000, 128, 1};
  const auto status = [&](auto change) {
    kvarn_plane* plane = nullptr;
    EXPECT_EQ(kvarn_plane_create(&config, &plane), KVARN_OK);
    kvarn_cuda_plane_write call = {};
    call.plane = plane;
    call.n_streams = call.n_kv_heads = 1;
    change(call);
    const kvarn_status found = kvarn_cuda_planes_write(&call, 1, nullptr, nullptr);
    kvarn_plane_destroy(plane);
    return found;
  };
  EXPECT_EQ(status([](auto&) {}), KVARN_ERROR_FORMAT);  // a plane for the CPU
  config.format.order = KVARN_ORDER_CUDA;
  EXPECT_EQ(status([](auto&) {}), KVARN_OK);  // no rows
  EXPECT_EQ(status([](auto& c) { c.plane = nullptr; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(status([](auto& c) { c.n_kv_heads = 0; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(status([](auto& c) { c.n_rows = -1; }), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(status([](auto& c) { c.n_rows = 1; }), KVARN_ERROR_ARGUMENT);  // and no pointers
  EXPECT_EQ(status([](auto& c) { c.heads_per_kv = 17; }), KVARN_ERROR_UNSUPPORTED);
  EXPECT_EQ(status([](auto& c) { c.n_streams = 65536; }), KVARN_ERROR_UNSUPPORTED);
  config.sink_tiles = 8;  // all tiles: as many slots
  config.format.head_dim = 576;
  EXPECT_EQ(status([](auto&) {}), KVARN_ERROR_UNSUPPORTED);
}

TEST(PlaneWriteCall, OneOrTwoCallsAndAWorkspace) {
  const kvarn_plane_config config = {
      {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128}, 1000, 128, 1};
  kvarn_plane* plane = nullptr;
  ASSERT_EQ(kvarn_plane_create(&config, &plane), KVARN_OK);
  kvarn_cuda_plane_write calls[3] = {};
  for (kvarn_cuda_plane_write& call : calls) {
    call.plane = plane;
    call.n_streams = call.n_kv_heads = 1;
  }
  alignas(256) uint8_t memory[512] = {};
  EXPECT_EQ(kvarn_cuda_planes_write(nullptr, 0, nullptr, nullptr), KVARN_OK);
  EXPECT_EQ(kvarn_cuda_planes_write(calls, -1, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_planes_write(calls, 2, nullptr, nullptr), KVARN_OK);
  EXPECT_EQ(kvarn_cuda_planes_write(calls, 2, memory, nullptr), KVARN_OK);
  EXPECT_EQ(kvarn_cuda_planes_write(calls, 2, memory + 1, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_planes_write(calls, 3, nullptr, nullptr), KVARN_ERROR_ARGUMENT);

  const size_t none = kvarn_cuda_planes_write_workspace_bytes(calls, 2);
  EXPECT_GT(none, 0U);
  calls[0].n_rows = 127;  // fewer than a tile
  EXPECT_EQ(kvarn_cuda_planes_write_workspace_bytes(calls, 2), none);
  calls[0].n_rows = 128;
  const size_t one = kvarn_cuda_planes_write_workspace_bytes(calls, 2);
  EXPECT_GT(one, none);
  calls[1].n_rows = 1280;
  EXPECT_GT(kvarn_cuda_planes_write_workspace_bytes(calls, 2), one);
  EXPECT_EQ(kvarn_cuda_planes_write_workspace_bytes(calls, 3), 0U);
  calls[1].n_kv_heads = 0;
  EXPECT_EQ(kvarn_cuda_planes_write_workspace_bytes(calls, 2), 0U);
  kvarn_plane_destroy(plane);
}

TEST(PlaneWriteCall, TakesFewRowsIntoBlocksOfTheirOwn) {
  const kvarn_plane_config config = {
      {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128}, 1000, 128, 1};
  kvarn_plane* plane = nullptr;
  ASSERT_EQ(kvarn_plane_create(&config, &plane), KVARN_OK);
  kvarn_cuda_plane_write call = {};
  call.plane = plane;
  call.n_streams = 2;
  call.n_kv_heads = 3;
  call.n_rows = 32;
  EXPECT_GE(kvarn_cuda_planes_taken_bytes(&call), 6U * 32 * sizeof(int32_t));
  call.n_rows = 33;
  EXPECT_EQ(kvarn_cuda_planes_taken_bytes(&call), 0U);
  EXPECT_EQ(kvarn_cuda_planes_taken_bytes(nullptr), 0U);
  EXPECT_EQ(kvarn_cuda_planes_take(nullptr, 1, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_planes_take(&call, -1, nullptr), KVARN_ERROR_ARGUMENT);
  alignas(64) uint8_t memory[256] = {};
  call.n_rows = 1;
  call.planes = memory;
  call.plane_stride = static_cast<int64_t>(kvarn_plane_bytes(plane));
  call.rows = reinterpret_cast<const int64_t*>(memory);
  call.x = reinterpret_cast<const float*>(memory);
  EXPECT_EQ(kvarn_cuda_planes_take(&call, 1, nullptr), KVARN_ERROR_ARGUMENT);  // without a block
  call.taken = memory + 1;
  EXPECT_EQ(kvarn_cuda_planes_take(&call, 1, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_planes_write(&call, 1, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  call.taken = memory;
  call.n_rows = 33;
  EXPECT_EQ(kvarn_cuda_planes_write(&call, 1, nullptr, nullptr), KVARN_ERROR_ARGUMENT);
  kvarn_plane_destroy(plane);
}

TEST(PlaneWriteCall, TwoPartsWantTheCopiesOfTheCall) {
  kvarn_plane_config config = {
      {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CUDA, 4, 128, 128}, 1000, 128, 1};
  kvarn_plane* planes[2] = {};
  ASSERT_EQ(kvarn_plane_create(&config, &planes[0]), KVARN_OK);
  config.format.role = KVARN_VALUE;
  ASSERT_EQ(kvarn_plane_create(&config, &planes[1]), KVARN_OK);
  kvarn_cuda_plane_write calls[2] = {};
  for (int i = 0; i < 2; ++i) {
    calls[i].plane = planes[i];
    calls[i].n_streams = calls[i].n_kv_heads = 1;
  }
  alignas(256) uint8_t memory[512] = {};
  const auto first = [&](int32_t n, const void* recent) {
    return kvarn_cuda_planes_write_first(calls, n, recent, memory, nullptr);
  };
  const auto rest = [&](int32_t n, const void* recent) {
    return kvarn_cuda_planes_write_rest(calls, n, recent, memory, nullptr);
  };
  EXPECT_EQ(first(2, nullptr), KVARN_OK);  // no rows, and all of them at once
  EXPECT_EQ(rest(2, nullptr), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(first(2, memory), KVARN_ERROR_ARGUMENT);  // a call that has no copies
  EXPECT_EQ(first(1, memory), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(first(2, memory + 1), KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_attention_reads_recent(nullptr), 0);
  for (kvarn_plane* plane : planes) kvarn_plane_destroy(plane);
}

TEST(EncodeCall, WrongCallsAreAnswered) {
  kvarn_format format = {KVARN_KEY, KVARN_BALANCED, KVARN_ORDER_CPU, 4, 128, 128};
  EXPECT_EQ(kvarn_cuda_encode(nullptr, KVARN_FP16, nullptr, 0, nullptr, nullptr),
            KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_encode(&format, KVARN_FP16, nullptr, 1, nullptr, nullptr),
            KVARN_ERROR_ARGUMENT);
  EXPECT_EQ(kvarn_cuda_encode(&format, KVARN_FP16, nullptr, 0, nullptr, nullptr),
            KVARN_ERROR_FORMAT);
  format.order = KVARN_ORDER_CUDA;
  format.head_dim = 512;
  EXPECT_EQ(kvarn_cuda_encode(&format, KVARN_FP16, nullptr, 0, nullptr, nullptr),
            KVARN_ERROR_UNSUPPORTED);
}

}  // namespace
