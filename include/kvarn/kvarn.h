// SPDX-License-Identifier: Apache-2.0
//
// kvarn: a KV cache in 2 to 8 bits. This header is the library's one stable boundary (C ABI).
//
// Conventions
//   * D = head dim, G = tile length in tokens ("group"), row = one token's K or V of one KV head.
//   * Rows handed in or out are contiguous in D; every other axis has an explicit stride in bytes.
//   * The library never allocates memory that the caller has to free except through the matching
//     *_destroy, never prints, exits, starts a thread or reads the environment.
//   * Functions that can fail return a kvarn_status; nothing is written to outputs on failure
//     unless a comment says so. kvarn_status_text() gives one English sentence.
//   * All functions may be called from any thread. Memory of one plane must not be written by two
//     threads at once, nor read while it is written.
#ifndef KVARN_KVARN_H_
#define KVARN_KVARN_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define KVARN_API
#else
#define KVARN_API __attribute__((visibility("default")))
#endif

// In C++ the enumerations have a fixed type, so that any value a C caller passes is well defined
// and can be refused.
#ifdef __cplusplus
#define KVARN_ENUM_TYPE : int32_t
extern "C" {
#else
#define KVARN_ENUM_TYPE
#endif

#define KVARN_VERSION_MAJOR 0
#define KVARN_VERSION_MINOR 1
#define KVARN_VERSION_PATCH 0

// Version of the record format (docs/format.md); changes whenever stored bytes change meaning.
#define KVARN_FORMAT_VERSION 1

typedef enum kvarn_status KVARN_ENUM_TYPE {
  KVARN_OK = 0,
  KVARN_ERROR_ARGUMENT = 1,     // null pointer, negative count, row out of range
  KVARN_ERROR_FORMAT = 2,       // bits, group, head dim, mode or order outside the legal set
  KVARN_ERROR_PRESET = 3,       // preset name not of the form kvarn_k{2,3,4,8}v{2,3,4,8}_g{64,128}
  KVARN_ERROR_NO_SLOT = 4,      // no exact-tile slot could be freed
  KVARN_ERROR_MEMORY = 5,       // allocation failed
  KVARN_ERROR_UNSUPPORTED = 6,  // legal, but not on this machine (for example a forced ISA level)
} kvarn_status;

// One English sentence, never null; a static string.
KVARN_API const char* kvarn_status_text(kvarn_status status);

// "0.1.0"; a static string.
KVARN_API const char* kvarn_version(void);

// ---------------------------------------------------------------------------- instruction sets

// Name of the level in use: "scalar", "avx2", "avx512" (AVX-512 F/BW/VL/DQ with VNNI) or "neon"
// (AArch64 with dot products).
KVARN_API const char* kvarn_isa_name(void);
// Force a level by name for all later calls of the process, or NULL for the best one.
// KVARN_ERROR_UNSUPPORTED if the machine lacks it, KVARN_ERROR_ARGUMENT if the name is unknown.
KVARN_API kvarn_status kvarn_isa_force(const char* name);

// ------------------------------------------------------------------------------------- formats

typedef enum kvarn_role KVARN_ENUM_TYPE { KVARN_KEY = 0, KVARN_VALUE = 1 } kvarn_role;

typedef enum kvarn_mode KVARN_ENUM_TYPE {
  KVARN_BALANCED = 0,   // the default encoder and format (docs/format.md section 5)
  KVARN_PUBLISHED = 1,  // arXiv 2606.03458: for import, export and comparison only
} kvarn_mode;

typedef enum kvarn_order KVARN_ENUM_TYPE {
  KVARN_ORDER_PORTABLE = 0,  // files, golden vectors, interchange
  KVARN_ORDER_CPU = 1,       // what the CPU kernels read
  KVARN_ORDER_CUDA = 2,      // what the CUDA kernels read: fragments of matrix instructions
} kvarn_order;

// Element types of rows that hosts hand in or keep. On CUDA KVARN_FP32 is for queries and outputs
// only.
typedef enum kvarn_dtype KVARN_ENUM_TYPE {
  KVARN_FP16 = 0,
  KVARN_BF16 = 1,
  KVARN_FP32 = 2,
} kvarn_dtype;

// A record format. Legal: bits in {2,3,4,8}; group in {64,128}; head_dim a multiple of 8 in
// [32, 576]; anything else is KVARN_ERROR_FORMAT.
typedef struct kvarn_format {
  kvarn_role role;
  kvarn_mode mode;
  kvarn_order order;
  int32_t bits;
  int32_t group;
  int32_t head_dim;
} kvarn_format;

typedef struct kvarn_preset {
  int32_t key_bits;
  int32_t value_bits;
  int32_t group;
} kvarn_preset;

// "kvarn_k4v2_g128" -> {4, 2, 128}. KVARN_ERROR_PRESET if it is anything else.
KVARN_API kvarn_status kvarn_preset_parse(const char* name, kvarn_preset* preset);

// Bytes of one record, 0 if the format is not legal.
KVARN_API size_t kvarn_record_bytes(const kvarn_format* format);

// Events the encoder met; added to, never reset by the library.
typedef struct kvarn_counts {
  uint64_t rows_zeroed;       // rows with a NaN or Inf, stored as zeros
  uint64_t values_saturated;  // inputs or scales beyond the fp16 range, stored as +-65504
} kvarn_counts;

// Balance of a K tile (docs/format.md section 4): exponents in 1/8 octaves, s[d] = 2^(e[d]/8).
//   keys     [n_rows][head_dim] fp32, n_rows >= 1
//   query_ms [head_dim] mean over tokens and query heads of q^2, or null (taken as all ones)
//   balance  [head_dim] out
KVARN_API kvarn_status kvarn_balance(int32_t head_dim, const float* keys, int32_t n_rows,
                                     const float* query_ms, int8_t* balance);

// Encode up to `group` rows into one record.
//   rows     [n_rows][head_dim] fp32, neither scaled nor rotated; 1 <= n_rows <= group; row i is
//            stored at position position[i] (ascending, < group) or i if position is null
//   balance  [head_dim] for balanced keys (null: all zero); must be null otherwise
//   record   kvarn_record_bytes(format) bytes, out; positions without a row decode to finite
//            values that depend on the other rows
//   counts   may be null
// Bytes depend on the input alone: every ISA level writes the same ones.
KVARN_API kvarn_status kvarn_encode(const kvarn_format* format, const float* rows, int32_t n_rows,
                                    const int32_t* position, const int8_t* balance, void* record,
                                    kvarn_counts* counts);

// Decode a record into [group][head_dim] fp32 rows, rotation and balance undone.
KVARN_API kvarn_status kvarn_decode(const kvarn_format* format, const void* record, float* rows);

// Copy a record into another order, without loss. `from` and `to` may differ in `order` only.
KVARN_API kvarn_status kvarn_reorder(const kvarn_format* from, const void* record,
                                     const kvarn_format* to, void* out);

// -------------------------------------------------------------------------------------- planes
//
// A plane is the K (or V) cache of one KV head of one layer and one stream: n_rows rows, kept as
// sealed records plus a few exact 16-bit tiles ("slots"). Its memory is one flat block of
// kvarn_plane_bytes() bytes that the caller owns; all zero bytes = empty; it holds no pointers and
// may be copied, moved or cleared with memcpy/memset. Life of a tile: docs/architecture.md.

typedef struct kvarn_plane_config {
  kvarn_format format;  // order CPU, or CUDA: planes for a device, which attention here refuses
  int64_t n_rows;       // > 0; the last tile may be partial
  int32_t tail_rows;  // >= 0: a full tile stays exact until this many rows (at least one) beyond it
                      // are written
  int32_t sink_tiles;  // >= 0: tiles 0..sink_tiles-1 stay exact
} kvarn_plane_config;

typedef struct kvarn_plane kvarn_plane;  // immutable description, shared by planes of one shape

KVARN_API kvarn_status kvarn_plane_create(const kvarn_plane_config* config, kvarn_plane** plane);
KVARN_API void kvarn_plane_destroy(kvarn_plane* plane);  // null is allowed
// Bytes of the memory of one plane (a multiple of 64; align the block to 64).
KVARN_API size_t kvarn_plane_bytes(const kvarn_plane* plane);

// Write one row. Within one plane calls are ordered; the result depends on that order of rows only,
// never on how they were grouped into calls of the host.
//   memory  the plane's block
//   row     0 <= row < n_rows
//   x       [head_dim] fp32, as the model computed it (after RoPE); stored exactly as fp16
//   query   keys only, may be null: the same token's query rows (after RoPE) of the query heads
//   that
//           share this KV head, [n_query][head_dim], query_stride bytes from one to the next
// After KVARN_ERROR_MEMORY the row may have been stored; writing it again is safe.
KVARN_API kvarn_status kvarn_plane_write(const kvarn_plane* plane, void* memory, int64_t row,
                                         const float* x, const float* query, int32_t n_query,
                                         size_t query_stride);

// Recent seals (optional). A host that writes the rows of many tokens before their attention runs
// lets tiles be sealed that the first of these tokens would have read exact, had they come one by
// one. Copies of such tiles, kept for the time of one call, make up for it: with them, attention
// does not depend on how tokens are grouped into calls (docs/architecture.md section 4).
//
// Copies of one plane lie in one flat block of the caller's, kvarn_recent_bytes() long and aligned
// to 64, that is begun before the first write of a call and read by the attention that belongs to
// that call. It is not part of the cache: it need not be copied with it, nor outlive the call.
// `n_copies` is the number of tiles it can hold: n / group + 2 for n rows of one sequence in order,
// one of these for a tile that an earlier sequence left partial. Tiles beyond that number are read
// as records by all tokens.

// 0 if the plane is null or n_copies negative.
KVARN_API size_t kvarn_recent_bytes(const kvarn_plane* plane, int32_t n_copies);
// Forget the copies of the call before; `recent` may hold anything.
KVARN_API kvarn_status kvarn_recent_begin(const kvarn_plane* plane, void* recent, int32_t n_copies);
// As kvarn_plane_write, and keep the exact rows of tiles that it seals.
//   recent  a block that was begun for this plane, or null
//   index   >= 0, of this row among the rows of the call (all streams), never less than in the
//           write before; the query token of the same row has this index in kvarn_attention
KVARN_API kvarn_status kvarn_plane_write_recent(const kvarn_plane* plane, void* memory, int64_t row,
                                                const float* x, const float* query, int32_t n_query,
                                                size_t query_stride, void* recent, int64_t index);

// Read rows [row, row + n) as fp16 [n][head_dim], out_stride bytes apart. Rows never written read
// as zero; sealed rows as their decoded value.
KVARN_API kvarn_status kvarn_plane_read(const kvarn_plane* plane, const void* memory, int64_t row,
                                        int64_t n, uint16_t* out, size_t out_stride);

// Forget everything in the plane (the same as clearing its memory).
KVARN_API kvarn_status kvarn_plane_reset(const kvarn_plane* plane, void* memory);

typedef struct kvarn_plane_stats {
  int64_t tiles_open;     // exact tiles, sinks included
  int64_t tiles_sealed;   // records
  uint64_t rows_written;  // calls of kvarn_plane_write that succeeded
  uint64_t seals;         // records encoded so far
  uint64_t reopens;       // records decoded because a row in them was written
  kvarn_counts counts;
} kvarn_plane_stats;

KVARN_API kvarn_status kvarn_plane_get_stats(const kvarn_plane* plane, const void* memory,
                                             kvarn_plane_stats* stats);

// The first bytes of a plane's memory, which say where its rows lie: all that get_stats and life
// read. 0 if the plane is null.
KVARN_API size_t kvarn_plane_table_bytes(const kvarn_plane* plane);
// A number for where the rows of a plane lie and what the next writes will do to its tiles: planes
// of one shape (up to head dim, bits and role) with equal numbers have the same tiles in the same
// states and places, and keep them as long as the same rows are written to both. 0 for an empty
// plane. Chance of equal numbers for different planes: 2^-64.
KVARN_API uint64_t kvarn_plane_life(const kvarn_plane* plane, const void* memory);

// ----------------------------------------------------------------------------------- attention

// One attention call over planes (softmax(scale q K^T + mask) V), grouped heads: query head h reads
// KV head h / (n_heads / n_kv_heads). All strides are bytes. T = n_tokens, S = n_streams.
typedef struct kvarn_attention {
  const kvarn_plane* key_plane;
  const kvarn_plane* value_plane;
  const void* keys;                               // memory of the K plane of stream 0, KV head 0
  const void* values;                             // likewise V
  size_t key_head_stride, key_stream_stride;      // between K planes
  size_t value_head_stride, value_stream_stride;  // between V planes

  int32_t n_streams;   // S >= 1
  int32_t n_tokens;    // T >= 1 query tokens of each stream
  int32_t n_heads;     // multiple of n_kv_heads
  int32_t n_kv_heads;  // >= 1
  int64_t n_rows;      // rows 0..n_rows-1 of each plane are visited, <= the planes' n_rows

  const float* query;  // [S][T][n_heads][Dk]
  size_t query_token_stride, query_head_stride, query_stream_stride;

  // Additive fp16 mask [.. mask_streams][mask_heads][T][n_rows] or null: stream s uses
  // s % mask_streams, head h uses h % mask_heads; -inf excludes a row. Rows of it are contiguous. A
  // row that was never written must be excluded here or it counts as some finite row (zero unless
  // its tile is sealed).
  const uint16_t* mask;
  int32_t mask_heads, mask_streams;
  size_t mask_token_stride, mask_head_stride, mask_stream_stride;

  float scale;  // softmax scale
  // ALiBi: the mask is multiplied by the head's slope (arXiv 2108.12409, any head count) before it
  // is added; 0 = off, slope 1.
  float max_bias;
  float softcap;       // 0 = off, else logit = softcap * tanh(scale * q.k / softcap)
  const float* sinks;  // [n_heads] sink logits that join the denominator only, or null

  float* out;  // [S][T][n_heads][Dv]; a row with no visible key becomes zeros
  size_t out_token_stride, out_head_stride, out_stream_stride;

  // Copies that were kept while the rows of these very query tokens were written, of stream 0, KV
  // head 0; or null, for K and V separately. Token t of stream s has index s * T + t and reads each
  // plane as it was after the write of that index.
  const void* key_recent;
  const void* value_recent;
  size_t key_recent_head_stride, key_recent_stream_stride;
  size_t value_recent_head_stride, value_recent_stream_stride;
} kvarn_attention;

// Bytes of scratch for a call (aligned to 64) run by n_threads threads; 0 if the call is not legal.
KVARN_API size_t kvarn_attention_workspace_bytes(const kvarn_attention* call, int32_t n_threads);

// Check the call and prepare the workspace; one thread, before any kvarn_attention_run of it.
// The same workspace serves any number of calls one after the other.
KVARN_API kvarn_status kvarn_attention_begin(const kvarn_attention* call, void* workspace,
                                             int32_t n_threads);

// Run share `thread` of `n_threads` (the number given to begin). Every share must be run once, in
// any order and at the same time; none waits for another. The output is complete when all have
// returned and does not depend on n_threads.
KVARN_API void kvarn_attention_run(const kvarn_attention* call, void* workspace, int32_t thread,
                                   int32_t n_threads);

#ifdef __cplusplus
}  // extern "C"
#endif
#endif  // KVARN_KVARN_H_
