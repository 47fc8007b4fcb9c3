// SPDX-License-Identifier: Apache-2.0
//
// The C ABI: checks arguments, then calls the C++ core. Nothing is thrown across it.
#include <new>

#include "attention/plane_work.h"
#include "cache/plane.h"
#include "cache/recent.h"
#include "codec/balance.h"
#include "codec/record.h"
#include "cpu/kernels.h"
#include "format/record_layout.h"
#include "kvarn/kvarn.h"

#define KVARN_STRING_(x) #x
#define KVARN_STRING(x) KVARN_STRING_(x)

namespace {

bool LegalHeadDim(int32_t dim) {
  return dim >= kvarn::kMinHeadDim && dim <= kvarn::kMaxHeadDim && dim % 8 == 0;
}

bool LegalPositions(const int32_t* position, int32_t n_rows, int32_t group) {
  for (int32_t i = 0; i < n_rows; ++i) {
    if (position[i] < 0 || position[i] >= group) return false;
    if (i > 0 && position[i] <= position[i - 1]) return false;
  }
  return true;
}

bool LegalRows(const kvarn_plane& plane, int64_t row, int64_t n) {
  return row >= 0 && n >= 0 && row <= plane.config.n_rows - n;
}

}  // namespace

const char* kvarn_status_text(kvarn_status status) {
  switch (status) {
    case KVARN_OK:
      return "no error";
    case KVARN_ERROR_ARGUMENT:
      return "an argument is null, negative or out of range";
    case KVARN_ERROR_FORMAT:
      return "not a legal format: bits must be 2, 3, 4 or 8, group 64 or 128, head dim a multiple "
             "of 8 from 32 to 576";
    case KVARN_ERROR_PRESET:
      return "not a preset: expected kvarn_k{2,3,4,8}v{2,3,4,8}_g{64,128}, for example "
             "kvarn_k4v2_g128";
    case KVARN_ERROR_NO_SLOT:
      return "no exact tile could be freed for a row: every slot holds a sink";
    case KVARN_ERROR_MEMORY:
      return "out of memory";
    case KVARN_ERROR_UNSUPPORTED:
      return "not supported on this machine";
  }
  return "unknown status";
}

const char* kvarn_version(void) {
  return KVARN_STRING(KVARN_VERSION_MAJOR) "." KVARN_STRING(KVARN_VERSION_MINOR) "." KVARN_STRING(
      KVARN_VERSION_PATCH);
}

const char* kvarn_isa_name(void) { return kvarn::ActiveKernels().name; }

kvarn_status kvarn_isa_force(const char* name) {
  if (name == nullptr) {
    kvarn::ForceKernels(nullptr);
    return KVARN_OK;
  }
  bool known = false;
  const kvarn::Kernels* kernels = kvarn::FindKernels(name, &known);
  if (!known) return KVARN_ERROR_ARGUMENT;
  if (kernels == nullptr) return KVARN_ERROR_UNSUPPORTED;
  kvarn::ForceKernels(kernels);
  return KVARN_OK;
}

size_t kvarn_record_bytes(const kvarn_format* format) {
  if (format == nullptr || !kvarn::IsLegal(*format)) return 0;
  return kvarn::MakeRecordLayout(*format).bytes;
}

kvarn_status kvarn_balance(int32_t head_dim, const float* keys, int32_t n_rows,
                           const float* query_ms, int8_t* balance) {
  if (keys == nullptr || balance == nullptr || n_rows < 1) return KVARN_ERROR_ARGUMENT;
  if (!LegalHeadDim(head_dim)) return KVARN_ERROR_FORMAT;
  kvarn::ComputeBalance(head_dim, keys, head_dim, n_rows, query_ms, balance);
  return KVARN_OK;
}

kvarn_status kvarn_encode(const kvarn_format* format, const float* rows, int32_t n_rows,
                          const int32_t* position, const int8_t* balance, void* record,
                          kvarn_counts* counts) {
  if (format == nullptr || rows == nullptr || record == nullptr) return KVARN_ERROR_ARGUMENT;
  if (!kvarn::IsLegal(*format)) return KVARN_ERROR_FORMAT;
  if (n_rows < 1 || n_rows > format->group) return KVARN_ERROR_ARGUMENT;
  if (position != nullptr && !LegalPositions(position, n_rows, format->group)) {
    return KVARN_ERROR_ARGUMENT;
  }
  if (balance != nullptr && !kvarn::MakeRecordLayout(*format).has_balance) {
    return KVARN_ERROR_ARGUMENT;
  }
  return kvarn::EncodeRecord(*format, rows, format->head_dim, n_rows, position, balance,
                             static_cast<uint8_t*>(record), counts);
}

kvarn_status kvarn_decode(const kvarn_format* format, const void* record, float* rows) {
  if (format == nullptr || rows == nullptr || record == nullptr) return KVARN_ERROR_ARGUMENT;
  if (!kvarn::IsLegal(*format)) return KVARN_ERROR_FORMAT;
  return kvarn::DecodeRecord(*format, static_cast<const uint8_t*>(record), rows);
}

kvarn_status kvarn_reorder(const kvarn_format* from, const void* record, const kvarn_format* to,
                           void* out) {
  if (from == nullptr || record == nullptr || to == nullptr || out == nullptr) {
    return KVARN_ERROR_ARGUMENT;
  }
  if (!kvarn::IsLegal(*from) || !kvarn::IsLegal(*to)) return KVARN_ERROR_FORMAT;
  kvarn_format same = *to;
  same.order = from->order;
  if (same.role != from->role || same.mode != from->mode || same.bits != from->bits ||
      same.group != from->group || same.head_dim != from->head_dim) {
    return KVARN_ERROR_ARGUMENT;
  }
  return kvarn::ReorderRecord(*from, static_cast<const uint8_t*>(record), *to,
                              static_cast<uint8_t*>(out));
}

kvarn_status kvarn_plane_create(const kvarn_plane_config* config, kvarn_plane** plane) {
  if (config == nullptr || plane == nullptr) return KVARN_ERROR_ARGUMENT;
  kvarn_plane made = {};
  const kvarn_status status = kvarn::MakePlane(*config, &made);
  if (status != KVARN_OK) return status;
  auto* result = new (std::nothrow) kvarn_plane(made);
  if (result == nullptr) return KVARN_ERROR_MEMORY;
  *plane = result;
  return KVARN_OK;
}

void kvarn_plane_destroy(kvarn_plane* plane) { delete plane; }

size_t kvarn_plane_bytes(const kvarn_plane* plane) { return plane == nullptr ? 0 : plane->bytes; }

kvarn_status kvarn_plane_write(const kvarn_plane* plane, void* memory, int64_t row, const float* x,
                               const float* query, int32_t n_query, size_t query_stride) {
  return kvarn_plane_write_recent(plane, memory, row, x, query, n_query, query_stride, nullptr, 0);
}

size_t kvarn_recent_bytes(const kvarn_plane* plane, int32_t n_copies) {
  return plane == nullptr || n_copies < 0 ? 0 : kvarn::RecentBytes(*plane, n_copies);
}

kvarn_status kvarn_recent_begin(const kvarn_plane* plane, void* recent, int32_t n_copies) {
  if (plane == nullptr || recent == nullptr || n_copies < 0) return KVARN_ERROR_ARGUMENT;
  *static_cast<kvarn::RecentHeader*>(recent) = {n_copies, 0, {}};
  return KVARN_OK;
}

kvarn_status kvarn_plane_write_recent(const kvarn_plane* plane, void* memory, int64_t row,
                                      const float* x, const float* query, int32_t n_query,
                                      size_t query_stride, void* recent, int64_t index) {
  if (plane == nullptr || memory == nullptr || x == nullptr || !LegalRows(*plane, row, 1)) {
    return KVARN_ERROR_ARGUMENT;
  }
  if ((query != nullptr && n_query < 1) || index < 0) return KVARN_ERROR_ARGUMENT;
  return kvarn::WriteRow(*plane, memory, row, x, query, n_query, query_stride,
                         static_cast<kvarn::RecentHeader*>(recent), index);
}

kvarn_status kvarn_plane_read(const kvarn_plane* plane, const void* memory, int64_t row, int64_t n,
                              uint16_t* out, size_t out_stride) {
  if (plane == nullptr || memory == nullptr || (out == nullptr && n > 0) ||
      !LegalRows(*plane, row, n)) {
    return KVARN_ERROR_ARGUMENT;
  }
  return kvarn::ReadRows(*plane, memory, row, n, out, out_stride);
}

kvarn_status kvarn_plane_reset(const kvarn_plane* plane, void* memory) {
  if (plane == nullptr || memory == nullptr) return KVARN_ERROR_ARGUMENT;
  kvarn::ResetPlane(*plane, memory);
  return KVARN_OK;
}

kvarn_status kvarn_plane_get_stats(const kvarn_plane* plane, const void* memory,
                                   kvarn_plane_stats* stats) {
  if (plane == nullptr || memory == nullptr || stats == nullptr) return KVARN_ERROR_ARGUMENT;
  *stats = kvarn::PlaneStats(*plane, memory);
  return KVARN_OK;
}

size_t kvarn_plane_table_bytes(const kvarn_plane* plane) {
  return plane == nullptr ? 0 : plane->queries;
}

uint64_t kvarn_plane_life(const kvarn_plane* plane, const void* memory) {
  return plane == nullptr || memory == nullptr ? 0 : kvarn::PlaneLife(*plane, memory);
}

size_t kvarn_attention_workspace_bytes(const kvarn_attention* call, int32_t n_threads) {
  if (call == nullptr || n_threads < 1 || kvarn::CheckAttention(*call) != KVARN_OK) return 0;
  return kvarn::PlanAttention(kvarn::PlaneWork(*call), n_threads).bytes;
}

kvarn_status kvarn_attention_begin(const kvarn_attention* call, void* workspace,
                                   int32_t n_threads) {
  if (call == nullptr || workspace == nullptr || n_threads < 1) return KVARN_ERROR_ARGUMENT;
  const kvarn_status status = kvarn::CheckAttention(*call);
  if (status != KVARN_OK) return status;
  return kvarn::BeginAttention(kvarn::PlaneWork(*call), workspace, n_threads);
}

void kvarn_attention_run(const kvarn_attention* call, void* workspace, int32_t thread,
                         int32_t n_threads) {
  kvarn::RunAttention(kvarn::PlaneWork(*call), workspace, thread, n_threads);
}
