// SPDX-License-Identifier: Apache-2.0
//
// Which tensors are KV caches, and how much memory they get.
//
// llama.cpp allocates per layer cache_k_l<il> and cache_v_l<il> (with an optional tag before "k" or
// "v"): F16 [E, n_rows, n_stream], E = head dim * KV heads. ggml asks for sizes before anything has
// shown the head dim, so sizes rest on a guess; the planes are laid out when it is known.
#ifndef KVARN_PLUGINS_GGML_KV_LAYOUT_H_
#define KVARN_PLUGINS_GGML_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "config.h"
#include "ggml.h"
#include "kvarn/kvarn.h"

namespace kvarn::ggml_plugin {

// What a device writes into its KV caches, and how.
struct KvFormat {
  kvarn_preset preset = {};
  kvarn_mode mode = KVARN_BALANCED;
  kvarn_order order = KVARN_ORDER_CPU;
  int32_t tail_rows = 0;
  int32_t sink_tiles = 0;
  Sliding sliding = Sliding::kAuto;
  bool cuda_graphs = true;
};

struct KvIdentity {
  kvarn_role role = KVARN_KEY;
  int layer = 0;
};

// Name and shape of a cache tensor (never the name alone: checkpoints and copies share names).
bool IdentifyKv(const ggml_tensor* tensor, KvIdentity* identity);

// Memory of a cache: planes of sealed records, or plain F16 as declared.
enum class Storage { kPlanes, kPlain };

// Decided by the number of rows alone, so that the K and V of a layer always agree.
// `largest_rows` is the largest cache of the same context seen so far (0: none).
Storage ChooseStorage(const KvFormat& format, int64_t n_rows, int64_t largest_rows);

kvarn_plane_config PlaneConfig(const KvFormat& format, kvarn_role role, int32_t head_dim,
                               int64_t n_rows);

// Bytes of one plane, 0 if the head dim is not legal.
size_t PlaneBytes(const KvFormat& format, kvarn_role role, int32_t head_dim, int64_t n_rows);

// The head dim to size a cache for: the hint if it divides E, else 64 if that does, else E.
// Small dims cost more, so 64 is on the safe side.
int32_t GuessHeadDim(int64_t n_embd, int32_t hint);

// Bytes of all planes of a cache tensor at this head dim, 0 if that is not legal.
size_t ArenaBytes(const KvFormat& format, kvarn_role role, int32_t head_dim,
                  const ggml_tensor* tensor);

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_KV_LAYOUT_H_
