// SPDX-License-Identifier: Apache-2.0
//
// kvarn on CUDA devices (C ABI). The conventions of kvarn.h hold; in addition every pointer named
// "device" is device memory, `stream` is a cudaStream_t, and all calls only enqueue work on it:
// none waits, allocates device memory or reads device memory on the host, so each may be captured
// in a CUDA graph.
#ifndef KVARN_KVARN_CUDA_H_
#define KVARN_KVARN_CUDA_H_

#include "kvarn/kvarn.h"

#ifdef __cplusplus
extern "C" {
#endif

// One tile to encode; an array of these lies in device memory.
typedef struct kvarn_cuda_tile {
  const void* rows;       // device: row of position 0, head_dim 16-bit values
  int64_t row_stride;     // bytes from one position to the next
  const int8_t* balance;  // device [head_dim], or null (all zero); ignored for values
  void* record;           // device, kvarn_record_bytes(format), aligned to 16
  uint64_t written[2];    // one bit a position that holds a row; none: no tile, nothing is done
  // Null, or where positions from later_from on lie: later_rows + position * later_row_stride.
  const void* later_rows;
  int64_t later_row_stride;
  int32_t later_from;
  int32_t reserved;
} kvarn_cuda_tile;

// Encode n_tiles tiles of 16-bit rows. format->order must be KVARN_ORDER_CUDA, format->mode
// KVARN_BALANCED and format->head_dim at most 256; otherwise KVARN_ERROR_FORMAT or
// KVARN_ERROR_UNSUPPORTED.
//   tiles   device [n_tiles]
//   counts  device, added to, may be null
// The records are those of kvarn_encode, byte for byte.
KVARN_API kvarn_status kvarn_cuda_encode(const kvarn_format* format, kvarn_dtype dtype,
                                         const kvarn_cuda_tile* tiles, int32_t n_tiles,
                                         kvarn_counts* counts, void* stream);

// ---------------------------------------------------------------------------- decode attention
//
// softmax(scale q K^T) V for a few query tokens of each of many sequences, directly on records.
// The rows of a sequence lie in three places, by position:
//   * tile 0 as exact 16-bit rows (the sink), if sink_rows[i] >= 0 and sealed_rows[i] covers it;
//   * the other full tiles below sealed_rows[i] as records of order CUDA, found by block_table;
//   * the rest as exact rows in a ring of ring_rows / group chunks of `group` neighbouring rows:
//     position x in row ring_base[i][x / group % (ring_rows / group)] + x % group.
// Hosts whose rows are written in any order say for each tile where it lies (tile_table): then a
// position is a row of the cache, all positions below lengths[i] are visible to all query tokens,
// and the mask alone says which of them count. Planes (below) are such a cache, one stream a
// sequence.
// Query head h reads KV head h / (n_heads / n_kv_heads). Strides are bytes. Query token t of the T
// = n_tokens of a sequence sees positions up to lengths[i] - T + t.
enum {
  KVARN_CUDA_TILE_RECORD = -1,
  KVARN_CUDA_TILE_EMPTY = -2,
  KVARN_CUDA_TILE_CHUNK = 1 << 30,  // prefill only: plus a row of chunk_keys and chunk_values
};

// Bits of a mask map, for a tile and KVARN_CUDA_MAP_TOKENS query tokens: some of them see some row
// of the tile; all of them see all of its rows, with nothing added.
enum { KVARN_CUDA_MAP_SEEN = 1, KVARN_CUDA_MAP_PLAIN = 2 };
enum { KVARN_CUDA_MAP_TOKENS = 16 };

typedef struct kvarn_cuda_decode {
  kvarn_format key_format;    // order CUDA, balanced; same group as values
  kvarn_format value_format;  // order CUDA, balanced
  kvarn_dtype dtype;          // of exact rows: KVARN_FP16 or KVARN_BF16
  // Of query and out: the dtype of the rows, or KVARN_FP32 with a tile_table and rows of
  // KVARN_FP16. Queries are then rounded to fp16, which they must fit; outputs are not clamped.
  kvarn_dtype query_dtype;

  int32_t n_sequences;  // >= 0
  int32_t n_tokens;     // >= 1
  int32_t n_heads;      // multiple of n_kv_heads
  int32_t n_kv_heads;

  // Records of block b, KV head h: key_records + b * key_block_stride + h * key_head_stride, and
  // + i * key_sequence_stride for sequence i, which must be 0 without a tile_table. Base and
  // strides multiples of 16 bytes.
  const void* key_records;  // device
  const void* value_records;
  int64_t key_block_stride, key_head_stride;
  int64_t value_block_stride, value_head_stride;
  int64_t key_sequence_stride, value_sequence_stride;
  const int32_t* block_table;  // device [n_sequences][block_table_stride], by tile
  int32_t block_table_stride;

  // Exact row r of KV head h: exact_keys + r * exact_key_row_stride + h * exact_key_head_stride +
  // i * exact_key_sequence_stride, likewise.
  const void* exact_keys;  // device
  const void* exact_values;
  int64_t exact_key_row_stride, exact_key_head_stride;
  int64_t exact_value_row_stride, exact_value_head_stride;
  int64_t exact_key_sequence_stride, exact_value_sequence_stride;
  int32_t ring_rows;  // a multiple of the group, and no less than the rows that are not sealed

  const int32_t* lengths;      // device [n_sequences] rows, those of the query tokens included
  const int32_t* sealed_rows;  // device [n_sequences]; only whole tiles below
                               // lengths[i] - n_tokens count
  const int32_t* sink_rows;    // device [n_sequences] exact row of position 0, or -1; null: none
  const int32_t* ring_base;    // device [n_sequences][ring_base_stride], by chunk; an entry is read
                               // only if its chunk holds rows
  int32_t ring_base_stride;

  // Null, or device [n_sequences][tile_table_stride], by tile: KVARN_CUDA_TILE_RECORD,
  // KVARN_CUDA_TILE_EMPTY (takes no part), or the exact row of its first position. In its place
  // sealed_rows, sink_rows and ring_base are not read, window must be 0 and ALiBi needs a mask;
  // block_table may be null: the block is the tile.
  int32_t tile_table_stride;
  const int32_t* tile_table;

  // Strides multiples of 8 bytes, of 16 if fp32; the base too.
  const void* query;  // device [n_sequences][n_tokens][n_heads][Dk]
  int64_t query_sequence_stride, query_token_stride, query_head_stride;
  void* out;  // device [n_sequences][n_tokens][n_heads][Dv]; zeros where nothing is visible
  int64_t out_sequence_stride, out_token_stride, out_head_stride;

  float scale;     // softmax scale, > 0
  float softcap;   // 0 = off, else logit = softcap * tanh(logit / softcap)
  int32_t window;  // 0 = off, else only the last `window` positions are visible
  float max_bias;  // ALiBi (arXiv 2108.12409), 0 = off; times (position - own position), or mask
  const float* sinks;    // device [n_heads] logits that join the denominator only, or null
  const uint16_t* mask;  // device, additive fp16 [n_sequences][n_tokens][positions], or null
  int64_t mask_sequence_stride, mask_token_stride;
  // Null, or device [n_sequences][ceil(n_tokens / 16)][mask_map_stride], by tile: what
  // kvarn_cuda_mask_map found in this mask. Needs a tile_table and a mask. Tiles that no query
  // token sees are passed over, and the mask is not read where a tile is plain.
  const uint8_t* mask_map;
  int32_t mask_map_stride;  // tiles, at least those of every lengths[i]
} kvarn_cuda_decode;

// Looks through a mask once, for the calls of all layers that share it.
//   mask    device, additive fp16 [n_sequences][n_tokens][n_positions]; strides are bytes,
//           multiples of 2
//   group   64 or 128, positions of a tile
//   map     device, out [n_sequences][ceil(n_tokens / 16)][ceil(n_positions / group)] of the bits
//           KVARN_CUDA_MAP_*. A row is seen unless its addend is -Inf; rows from n_positions on are
//           not. n_sequences, n_tokens, n_positions >= 0.
// KVARN_ERROR_ARGUMENT if the call is not legal.
KVARN_API kvarn_status kvarn_cuda_mask_map(const uint16_t* mask, int64_t mask_sequence_stride,
                                           int64_t mask_token_stride, int32_t n_sequences,
                                           int32_t n_tokens, int32_t n_positions, int32_t group,
                                           uint8_t* map, void* stream);

// Bytes of workspace (device, aligned to 256) for calls of at most this shape on the current
// device; 0 if the call is not legal. Only shapes, formats and which options are on matter, not
// pointers.
KVARN_API size_t kvarn_cuda_decode_workspace_bytes(const kvarn_cuda_decode* call);

// KVARN_OK, or why the call cannot run: KVARN_ERROR_ARGUMENT, KVARN_ERROR_FORMAT, or
// KVARN_ERROR_UNSUPPORTED where it is legal but no kernel was compiled for it, or the device is not
// of compute capability 9. At most 64 query rows (n_tokens * n_heads / n_kv_heads), 16 where a head
// dim is no multiple of 64.
KVARN_API kvarn_status kvarn_cuda_decode_check(const kvarn_cuda_decode* call);

// Cuts the work by the lengths found on the device. Once for all calls of one step that share
// shapes, options, lengths, block_table and sealed_rows, sink_rows and ring_base, or tile_table and
// mask_map (all layers of a model).
KVARN_API kvarn_status kvarn_cuda_decode_plan(const kvarn_cuda_decode* call, void* workspace,
                                              void* stream);

// Attention by the plan in the workspace. Calls that share a workspace must be ordered by stream.
KVARN_API kvarn_status kvarn_cuda_decode_run(const kvarn_cuda_decode* call, void* workspace,
                                             void* stream);

// --------------------------------------------------------------------------- prefill attention
//
// The same for many query tokens of each of many sequences, together with the keys and values of
// those tokens themselves. `query_begin` cuts the flat arrays of tokens: sequence i has the tokens
// query_begin[i] to query_begin[i + 1] - 1, at the positions lengths[i] - n_i to lengths[i] - 1,
// and each sees the positions up to its own. Where the row of a position is found:
//   * positions of the call's own tokens: in chunk_keys and chunk_values;
//   * the tile of position 0, if sink_rows[i] >= 0: never a record. In the sink rows if sealed_rows
//     covers it, else in the ring or the chunk;
//   * other tiles of `group` positions: as below.
// A query at position x reads tile t (positions t * group to (t + 1) * group - 1) as its record if
//   (t + 1) * group <= min(sealed_rows[i], lengths[i] - n_i), or
//   seal_lag >= 0 and (t + 1) * group + seal_lag <= x;
// else as exact rows, from the ring or, from position lengths[i] - n_i on, from the chunk. So with
// seal_lag >= 0 tiles of the chunk itself may be read as records, each query by its own position
// and not by how tokens were grouped into calls; these records must be complete when the call runs,
// and sealed_rows[i] must not exceed what the first query of the call would read as records by the
// rule (then no query's result depends on the grouping). With seal_lag = -1 the chunk is always
// exact.
typedef struct kvarn_cuda_prefill {
  // As in decode. Without a tile_table but for:
  //   n_tokens                    the most query tokens of a sequence, >= 1; fixes the grid
  //   lengths                     rows visible to the last query token of a sequence, >= n_i
  //   query, out                  device [total_tokens][n_heads][D] by query_begin; the
  //                               *_sequence_stride are not read
  //   mask                        device [total_tokens][positions], likewise
  // With one all rows lie in the cache, those of the query tokens too: every sequence has n_tokens
  // query tokens, mask must be given, seal_lag must be -1, and total_tokens and query_begin are not
  // read. An entry of KVARN_CUDA_TILE_CHUNK + r says that the rows of a tile lie in chunk_keys and
  // chunk_values from row r on; without such entries these are not read.
  kvarn_cuda_decode attention;

  int32_t total_tokens;        // of all sequences, 0 to n_sequences * n_tokens; fixes the grid
  const int32_t* query_begin;  // device [n_sequences + 1], from 0 to total_tokens, ascending; no
                               // sequence has more than n_tokens

  // K and V of the query tokens: row r of KV head h as for exact rows; multiples of 16 bytes.
  const void* chunk_keys;  // device [total_tokens][n_kv_heads][Dk]
  const void* chunk_values;
  int64_t chunk_key_row_stride, chunk_key_head_stride;
  int64_t chunk_value_row_stride, chunk_value_head_stride;

  int32_t seal_lag;  // positions, >= 0, or -1
} kvarn_cuda_prefill;

// KVARN_OK, or why the call cannot run, as for decode; needs compute capability 8.0 or newer and
// shared memory of a CTA for a record pair and its rows (all sizes on 9.0), with a tile_table also
// for 3 bits a tile of tile_table_stride. Only shapes, formats
// and options matter, not pointers. Also makes the device ready for calls of this shape (it uploads
// small matrices), so a call that is captured in a graph must have been checked before.
KVARN_API kvarn_status kvarn_cuda_prefill_check(const kvarn_cuda_prefill* call);

// Enqueues the attention. Needs no workspace; sequences of any length cost no memory.
KVARN_API kvarn_status kvarn_cuda_prefill_run(const kvarn_cuda_prefill* call, void* stream);

// -------------------------------------------------------------------- life of tiles, paged hosts
//
// Takes the new rows of a step into the cache of kvarn_cuda_decode: seals the tiles that the step
// completes, then writes exact rows into rings and sinks. Everything follows from row_begin and
// lengths, which lie on the device, and from nothing else: rows that are written again (rejected
// drafts, preempted requests) replace what was there, and the same rows in other steps give the
// same bytes.
//   * Sequence i has row_begin[i + 1] - row_begin[i] new rows, its last ones: its row count
//     afterwards is lengths[i]. Steps may be of any length; a capture serves all steps with at most
//     n_rows rows.
//   * A tile is sealed when `tail_rows` rows beyond its end have been written.
//   * A ring keeps the last ring_rows / group tiles that were begun. It must reach back to the
//     first row of any tile that may still be sealed: ring_rows >= tail_rows + 2 * group, and
//     `group` more for each `group` rows by which lengths may fall (rejected drafts).
//   * Balance: tile balance_tile computes it from its own rows and queries, later tiles take that
//     of the record of balance_tile, earlier ones compute their own.
// Decode reads the records that sealed_rows counts; prefill reads the same ones with seal_lag =
// max(tail_rows - 1, 0). Rows with a NaN or Inf are stored as zeros.
typedef struct kvarn_cuda_append {
  kvarn_format key_format;    // order CUDA, balanced; same group as values
  kvarn_format value_format;  // order CUDA, balanced
  kvarn_dtype dtype;          // of all rows

  int32_t n_sequences;  // >= 0
  int32_t n_rows;       // >= 0, new rows of all sequences at most
  int32_t n_heads;      // multiple of n_kv_heads, at most 16 times as many
  int32_t n_kv_heads;

  const int32_t* row_begin;  // device [n_sequences + 1] ascending, the last at most n_rows
  const int32_t* lengths;    // device [n_sequences]

  // New rows, sequence by sequence: new_keys + row * new_key_row_stride + head *
  // new_key_head_stride. Bases and strides multiples of 16 bytes.
  const void* new_keys;  // device [n_rows][n_kv_heads][Dk]
  const void* new_values;
  int64_t new_key_row_stride, new_key_head_stride;
  int64_t new_value_row_stride, new_value_head_stride;
  const void* query;  // device [n_rows][n_heads][Dk], or null: balance from keys alone
  int64_t query_row_stride, query_head_stride;

  // The cache, as in kvarn_cuda_decode; ring_rows a multiple of the group.
  void* key_records;  // device
  void* value_records;
  int64_t key_block_stride, key_head_stride;
  int64_t value_block_stride, value_head_stride;
  const int32_t* block_table;  // device [n_sequences][block_table_stride], by tile
  int32_t block_table_stride;
  void* exact_keys;  // device
  void* exact_values;
  int64_t exact_key_row_stride, exact_key_head_stride;
  int64_t exact_value_row_stride, exact_value_head_stride;
  int32_t ring_rows;
  const int32_t* ring_base;  // device [n_sequences][ring_base_stride], by chunk
  int32_t ring_base_stride;
  const int32_t* sink_rows;  // device [n_sequences] exact row of position 0, or -1; null: none
  // Query statistics of the first tiles: fp16 [n_kv_heads][Dk] for each ring row, needed while a
  // sequence is shorter than (balance_tile + 1) * group + tail_rows; null if query is.
  void* query_rms;
  int64_t query_rms_row_stride;  // a multiple of 2

  int32_t tail_rows;     // >= 0
  int32_t balance_tile;  // >= 0: 0, or the number of tiles that stay exact as sinks
  int32_t* sealed_rows;  // device [n_sequences] out, for kvarn_cuda_decode; may be null
  kvarn_counts* counts;  // device, added to, may be null
} kvarn_cuda_append;

// Bytes of workspace (device, aligned to 256) for calls of at most this shape; 0 if the call is not
// legal. Only shapes and formats matter.
KVARN_API size_t kvarn_cuda_append_workspace_bytes(const kvarn_cuda_append* call);

// Finds out which tiles the step seals and writes sealed_rows. Once for all layers of a step.
// KVARN_ERROR_ARGUMENT, KVARN_ERROR_FORMAT or KVARN_ERROR_UNSUPPORTED (head dims beyond 256) if the
// call is not legal.
KVARN_API kvarn_status kvarn_cuda_append_plan(const kvarn_cuda_append* call, void* workspace,
                                              void* stream);

// Seals and writes one layer by the plan in the workspace; before the attention of the step.
KVARN_API kvarn_status kvarn_cuda_append_run(const kvarn_cuda_append* call, void* workspace,
                                             void* stream);

// ------------------------------------------------------------------------------------- planes
//
// Planes (kvarn.h) in device memory, for hosts that write any row at any time. A plane's format has
// order CUDA there; its memory is laid out as on the CPU, zero bytes are an empty plane, and the
// same rows in the same order give the bytes that kvarn_plane_write gives.
typedef struct kvarn_cuda_plane_write {
  const kvarn_plane* plane;       // host; head dim at most 256, at most 64 slots
  void* planes;                   // device [n_streams][n_kv_heads] blocks, aligned to 64
  int64_t plane_stride;           // bytes from block to block: a multiple of 64
  int32_t n_streams, n_kv_heads;  // at most 65535 blocks

  int32_t n_rows;       // >= 0
  const int64_t* rows;  // device [n_rows] stream * plane rows + row; others are passed over
  // Row i of head h: x + i * row_stride + h * head_stride, device, fp32 [head_dim]. Strides are
  // bytes, multiples of 4.
  const float* x;
  int64_t row_stride, head_stride;
  // Keys only, or null: the queries of the same tokens, device, fp32, of the heads_per_kv (at most
  // 16) query heads of each KV head one after the other.
  const float* query;
  int32_t heads_per_kv;
  int64_t query_row_stride, query_head_stride;
  // Device, kvarn_cuda_planes_taken_bytes, aligned to 64: kvarn_cuda_planes_take was enqueued for
  // this call. Or null.
  void* taken;
} kvarn_cuda_plane_write;

// Bytes of workspace (device, aligned to 256) for calls of at most these shapes; 0 if they are not
// legal. Only n_streams, n_kv_heads, n_rows and the planes' shapes matter.
KVARN_API size_t kvarn_cuda_planes_write_workspace_bytes(const kvarn_cuda_plane_write* calls,
                                                         int32_t n_calls);

// Enqueues the writes of n_calls calls (host, 0 to 2), each in its order, that share no plane:
// those of the K and the V of a layer. One kernel; two if a call has at least as many rows as a
// tile, of which the second encodes tiles side by side. The workspace keeps nothing between calls,
// so calls that are ordered by stream may share it; null is legal too: tiles are then encoded one
// after the other. KVARN_ERROR_ARGUMENT, KVARN_ERROR_FORMAT or KVARN_ERROR_UNSUPPORTED if a call is
// not legal; nothing is enqueued then. A row for which only sinks have slots is lost.
KVARN_API kvarn_status kvarn_cuda_planes_write(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                               void* workspace, void* stream);

// A step of a decoding host mostly writes rows that continue open tiles. For such rows, and for
// single rows of a plane that open a tile or seal one, the tables of all planes of all layers can
// be brought up to date at once, before the first row is there; tiles are then encoded side by
// side: kvarn_cuda_planes_take for any number of calls (host) that share no plane, each with a
// `taken` block of its own. Each call must then be written once, before its planes take part in
// anything else; whether its rows could be taken is decided on the device, and those of planes
// where they could not are written as ever. x and query are not read, but query must be null if it
// will be. KVARN_ERROR_* as kvarn_cuda_planes_write.
//
// Bytes of a block for a call; 0 if it is not legal or has more than 32 rows.
KVARN_API size_t kvarn_cuda_planes_taken_bytes(const kvarn_cuda_plane_write* call);
KVARN_API kvarn_status kvarn_cuda_planes_take(const kvarn_cuda_plane_write* calls, int32_t n_calls,
                                              void* stream);

// Recent tiles: exact copies of the tiles that the rows of a call belong to (of those that are
// sealed before it, only such as it writes anew as a whole) and of those of the same streams that
// are open before it, for the attention of the same tokens. A prompt seals tiles
// while it is written, which its own first tokens would read quantised; with copies all its tokens
// read the rows of the call exact, and of tiles that were open before the call those that were
// there. Memory grows with the rows of a call, not with the cache, and serves one layer after the
// other.
//
// Bytes of a block of copies (device, aligned to 256) for calls of at most these shapes, `calls`
// being the K and the V of a layer; 0 if they need none (no more rows than stay exact anyway, the
// tail) or are not legal.
KVARN_API size_t kvarn_cuda_recent_bytes(const kvarn_cuda_plane_write* calls);
// Finds the tiles of the rows. Once for all layers of a step that have the same rows, before the
// first of them is written to.
KVARN_API kvarn_status kvarn_cuda_recent_begin(const kvarn_cuda_plane_write* calls, void* recent,
                                               void* stream);
// Copies the tiles of a layer, before its kvarn_cuda_planes_write.
KVARN_API kvarn_status kvarn_cuda_recent_copy(const kvarn_cuda_plane_write* calls, void* recent,
                                              void* stream);
// kvarn_cuda_planes_write of the K and V of a layer (n_calls = 2) in two parts, for attention that
// reads copies of recent tiles (kvarn_cuda_attention_reads_recent): once the first is done
// attention may run, and beside it, on another stream, the rest, which encodes what has copies.
// The arguments of both are the same; x, the workspace and the block must not change until both are
// done, so the output of that attention must not lie where x does. A null block: the first does
// all.
KVARN_API kvarn_status kvarn_cuda_planes_write_first(const kvarn_cuda_plane_write* calls,
                                                     int32_t n_calls, const void* recent,
                                                     void* workspace, void* stream);
KVARN_API kvarn_status kvarn_cuda_planes_write_rest(const kvarn_cuda_plane_write* calls,
                                                    int32_t n_calls, const void* recent,
                                                    void* workspace, void* stream);
// Where a block has what: for attention over the streams from first_stream on.
typedef struct kvarn_cuda_recent {
  const int32_t* places;  // device [streams][places_stride]: which copy a tile has, below 0: none
  int32_t places_stride;
  const void* keys;  // device, fp16 [KV heads][copies][group][Dk]
  const void* values;
  int64_t key_head_stride, value_head_stride;
} kvarn_cuda_recent;
KVARN_API kvarn_status kvarn_cuda_recent_view(const kvarn_cuda_plane_write* calls,
                                              const void* recent, int32_t first_stream,
                                              kvarn_cuda_recent* view);

// Attention over planes: the call of kvarn_attention (kvarn.h), every pointer in it device memory
// but for key_plane and value_plane. K and V planes of all heads of a stream must have had the same
// rows written in the same order (kvarn_plane_life tells), sinks and tail must be alike; n_rows
// below 2^30, mask not null and the same for all heads; key_recent and value_recent null. `recent`
// is null or has copies of the tiles that the rows of these very tokens belong to.
//
// Bytes of workspace (device, aligned to 256) for calls of this shape; 0 if the call is not legal
// or no kernel was compiled for it. Only planes, shapes, strides and which options are on matter.
KVARN_API size_t kvarn_cuda_attention_workspace_bytes(const kvarn_attention* call);
// 1 if the kernel for calls of this shape reads copies of recent tiles, if it is given some; 0 if
// it reads the planes alone (a few tokens), so that their writes must be done before.
KVARN_API int32_t kvarn_cuda_attention_reads_recent(const kvarn_attention* call);
// Finds out where tiles lie and which of them the mask shows. Once for all calls of a step that
// share mask, scale, shapes and, by the rows written to them, the life of their planes (all layers
// of a model, after the rows of the step have been written to this one).
KVARN_API kvarn_status kvarn_cuda_attention_plan(const kvarn_attention* call,
                                                 const kvarn_cuda_recent* recent, void* workspace,
                                                 void* stream);
// Attention by the plan in the workspace. Calls that share a workspace must be ordered by stream.
KVARN_API kvarn_status kvarn_cuda_attention_run(const kvarn_attention* call,
                                                const kvarn_cuda_recent* recent, void* workspace,
                                                void* stream);

#ifdef __cplusplus
}  // extern "C"
#endif
#endif  // KVARN_KVARN_CUDA_H_
