// SPDX-License-Identifier: Apache-2.0
#include "kv_tensor.h"

#include <algorithm>
#include <cstring>

#include "host.h"
#include "log.h"

namespace kvarn::ggml_plugin {

// Rows [row, row + n) of stream `stream`, columns [column, column + width) of head `head`, and
// where they lie in the caller's bytes.
struct KvTensor::Span {
  int64_t stream, row, n, head;
  int32_t column, width;
  size_t bytes_at;  // offset of (row, column) from the start of the caller's bytes
};

// Memory that is not the host's is copied here and, if it was written, back.
class KvTensor::HostPlanes {
 public:
  HostPlanes(const KvTensor& tensor, bool writes) : tensor_(tensor), writes_(writes) {}
  ~HostPlanes() { Release(); }
  HostPlanes(const HostPlanes&) = delete;
  HostPlanes& operator=(const HostPlanes&) = delete;

  uint8_t* Of(int64_t stream, int64_t head) {
    if (tensor_.memory_type_->IsHost()) return tensor_.PlaneMemory(stream, head);
    if (stream != stream_) {
      Release();
      copy_.resize(tensor_.stream_stride());
      tensor_.memory_type_->Load(copy_.data(), tensor_.PlaneMemory(stream, 0), copy_.size());
      stream_ = stream;
    }
    return copy_.data() + static_cast<size_t>(head) * tensor_.head_stride();
  }

 private:
  void Release() {
    if (stream_ >= 0 && writes_) {
      tensor_.memory_type_->Store(tensor_.PlaneMemory(stream_, 0), copy_.data(), copy_.size());
    }
    stream_ = -1;
  }

  const KvTensor& tensor_;
  const bool writes_;
  int64_t stream_ = -1;
  std::vector<uint8_t> copy_;
};

KvTensor::KvTensor(const KvFormat& format, const KvIdentity& identity, const ggml_tensor* tensor,
                   KvMemory* memory, uint8_t* arena, size_t arena_bytes, int32_t head_dim_guess)
    : memory_type_(memory),
      format_(format),
      name_(tensor->name),
      role_(identity.role),
      n_embd_(tensor->ne[0]),
      n_rows_(tensor->ne[1]),
      n_streams_(tensor->ne[2]),
      arena_(arena),
      arena_bytes_(arena_bytes),
      head_dim_guess_(head_dim_guess) {}

KvTensor::~KvTensor() {
  kvarn_plane_destroy(plane_);
  ReleaseOwnMemory();
}

void KvTensor::ReleaseOwnMemory() {
  memory_type_->Unmap(own_, own_bytes_);
  own_ = nullptr;
  own_bytes_ = 0;
}

bool KvTensor::PlacePlanes(size_t bytes) {
  ReleaseOwnMemory();
  if (bytes <= arena_bytes_) {
    memory_ = arena_;
    return true;
  }
  own_ = memory_type_->Map(bytes);
  own_bytes_ = bytes;
  memory_ = own_;
  return own_ != nullptr;
}

void KvTensor::SetHeadDim(int32_t head_dim) {
  if (head_dim == head_dim_ || head_dim <= 0 || n_embd_ % head_dim != 0) return;
  std::vector<uint8_t> stored;
  bool lost = false;
  if (written_) {
    stored.resize(stream_bytes() * static_cast<size_t>(n_streams_));
    lost = Read(0, stored.size(), stored.data()) != KVARN_OK;
    if (lost) stored.clear();
    Clear(false);
  }
  kvarn_plane_destroy(plane_);
  plane_ = nullptr;
  head_dim_ = head_dim;
  const kvarn_plane_config config = PlaneConfig(format_, role_, head_dim, n_rows_);
  const bool supported = kvarn_plane_create(&config, &plane_) == KVARN_OK;
  if (supported) {
    plane_bytes_ = kvarn_plane_bytes(plane_);
    const size_t bytes = planes_bytes();
    if (bytes > arena_bytes_) {
      LogWarn("%s: head dim %d needs %.2f MiB instead of the %.2f MiB reported", name_.c_str(),
              head_dim, static_cast<double>(bytes) / 1048576.0,
              static_cast<double>(arena_bytes_) / 1048576.0);
    }
    if (!PlacePlanes(bytes)) {
      kvarn_plane_destroy(plane_);
      plane_ = nullptr;
    }
  }
  if (plane_ == nullptr) {
    const size_t bytes = stream_bytes() * static_cast<size_t>(n_streams_);
    LogWarn("%s: head dim %d is not supported, this cache stays fp16 (%.2f MiB)", name_.c_str(),
            head_dim, static_cast<double>(bytes) / 1048576.0);
    PlacePlanes(bytes);
  }
  if (!stored.empty()) lost = Write(0, stored.size(), stored.data()) != KVARN_OK;
  if (lost) {
    LogError("%s: no memory to move this cache to head dim %d: what it held is lost", name_.c_str(),
             head_dim);
  }
}

template <typename Visit>
kvarn_status KvTensor::ForEachSpan(size_t offset, size_t size, Visit visit) const {
  if (offset % sizeof(uint16_t) != 0 || size % sizeof(uint16_t) != 0) return KVARN_ERROR_ARGUMENT;
  const int64_t first = static_cast<int64_t>(offset / sizeof(uint16_t));
  const int64_t last = first + static_cast<int64_t>(size / sizeof(uint16_t));
  const int64_t group = format_.preset.group;
  int64_t element = first;
  while (element < last) {
    const int64_t global_row = element / n_embd_;
    const int64_t column = element % n_embd_;
    Span span = {};
    span.stream = global_row / n_rows_;
    span.row = global_row % n_rows_;
    // Whole rows are taken up to the end of their tile; a partial row goes alone.
    const int64_t tile_rows = std::min(group - span.row % group, n_rows_ - span.row);
    const bool whole = column == 0 && last - element >= n_embd_;
    span.n = whole ? std::min(tile_rows, (last - element) / n_embd_) : 1;
    const int64_t end_column = whole ? n_embd_ : std::min(n_embd_, column + last - element);
    for (int64_t begin = column; begin < end_column;) {
      span.head = begin / head_dim_;
      span.column = static_cast<int32_t>(begin % head_dim_);
      const int64_t end = std::min(end_column, (span.head + 1) * head_dim_);
      span.width = static_cast<int32_t>(end - begin);
      span.bytes_at = static_cast<size_t>(element - first + begin - column) * sizeof(uint16_t);
      const kvarn_status status = visit(span);
      if (status != KVARN_OK) return status;
      begin = end;
    }
    element += whole ? span.n * n_embd_ : end_column - column;
  }
  return KVARN_OK;
}

kvarn_status KvTensor::Read(size_t offset, size_t size, void* out) const {
  auto* bytes = static_cast<uint8_t*>(out);
  if (head_dim_ == 0 || memory_ == nullptr) {
    std::memset(out, 0, size);
    return KVARN_OK;
  }
  if (plane_ == nullptr) {
    memory_type_->Load(out, memory_ + offset, size);
    return KVARN_OK;
  }
  HostPlanes planes(*this, false);
  std::vector<uint16_t> row(static_cast<size_t>(head_dim_));
  return ForEachSpan(offset, size, [&](const Span& span) {
    const uint8_t* memory = planes.Of(span.stream, span.head);
    if (span.width == head_dim_) {
      return kvarn_plane_read(plane_, memory, span.row, span.n,
                              reinterpret_cast<uint16_t*>(bytes + span.bytes_at), row_bytes());
    }
    const kvarn_status status =
        kvarn_plane_read(plane_, memory, span.row, 1, row.data(), row_bytes());
    std::memcpy(bytes + span.bytes_at, row.data() + span.column,
                static_cast<size_t>(span.width) * sizeof(uint16_t));
    return status;
  });
}

kvarn_status KvTensor::Write(size_t offset, size_t size, const void* data) {
  EnsureLayout();
  if (memory_ == nullptr) return KVARN_ERROR_MEMORY;
  written_ = true;
  const auto* bytes = static_cast<const uint8_t*>(data);
  if (plane_ == nullptr) {
    memory_type_->Store(memory_ + offset, data, size);
    return KVARN_OK;
  }
  touched_ = true;
  HostPlanes planes(*this, true);
  const auto dim = static_cast<size_t>(head_dim_);
  std::vector<uint16_t> before(dim * static_cast<size_t>(format_.preset.group));
  std::vector<float> row(dim);
  return ForEachSpan(offset, size, [&](const Span& span) {
    uint8_t* memory = planes.Of(span.stream, span.head);
    kvarn_status status =
        kvarn_plane_read(plane_, memory, span.row, span.n, before.data(), dim * sizeof(uint16_t));
    const size_t width = static_cast<size_t>(span.width) * sizeof(uint16_t);
    for (int64_t i = 0; i < span.n && status == KVARN_OK; ++i) {
      uint16_t* old = before.data() + static_cast<size_t>(i) * dim;
      const uint8_t* given = bytes + span.bytes_at + static_cast<size_t>(i) * row_bytes();
      if (std::memcmp(old + span.column, given, width) == 0) continue;
      std::memcpy(old + span.column, given, width);
      Host().ggml_fp16_to_fp32_row(old, row.data(), head_dim_);
      status = kvarn_plane_write(plane_, memory, span.row + i, row.data(), nullptr, 0, 0);
    }
    return status;
  });
}

bool KvTensor::CopyStreams(const KvTensor& source, size_t source_offset, KvTensor* target,
                           size_t target_offset, size_t size) {
  const size_t bytes = source.stream_bytes();
  if (source_offset % bytes != 0 || target_offset % bytes != 0 || size % bytes != 0) return false;
  if (source.role_ != target->role_ || source.n_embd_ != target->n_embd_ ||
      source.n_rows_ != target->n_rows_ || source.plane_ == nullptr ||
      source.memory_type_ != target->memory_type_) {
    return false;
  }
  target->SetHeadDim(source.head_dim_);
  if (target->plane_ == nullptr || target->plane_bytes_ != source.plane_bytes_) return false;
  const auto from = static_cast<int64_t>(source_offset / bytes);
  const auto to = static_cast<int64_t>(target_offset / bytes);
  const size_t length = size / bytes * source.stream_stride();
  source.memory_type_->Copy(target->PlaneMemory(to, 0), source.PlaneMemory(from, 0), length);
  target->written_ = target->touched_ = true;
  return true;
}

void KvTensor::Clear(bool arena_is_zero) {
  written_ = false;
  if (memory_ == nullptr) return;
  touched_ = true;
  if (own_ != nullptr) {
    memory_type_->Zero(own_, own_bytes_);
  } else if (!arena_is_zero) {
    memory_type_->Zero(arena_, arena_bytes_);
  }
}

void KvTensor::ClearStream(int64_t stream) {
  if (memory_ == nullptr) return;
  touched_ = true;
  if (plane_ == nullptr) {
    memory_type_->Zero(memory_ + static_cast<size_t>(stream) * stream_bytes(), stream_bytes());
  } else {
    memory_type_->Zero(PlaneMemory(stream, 0), stream_stride());
  }
}

int64_t KvTensor::RowsHeld(int64_t stream) const {
  HostPlanes planes(*this, false);
  const auto dim = static_cast<size_t>(head_dim_);
  std::vector<uint16_t> tile(static_cast<size_t>(group()) * dim);
  int64_t held = 0;
  for (int32_t head = 0; head < n_heads(); ++head) {
    const uint8_t* memory = planes.Of(stream, head);
    const int64_t tiles = (n_rows_ + group() - 1) / group();
    for (int64_t begin = (tiles - 1) * group(); begin + group() > held && begin >= 0;
         begin -= group()) {
      const int64_t n = std::min<int64_t>(group(), n_rows_ - begin);
      kvarn_plane_read(plane_, memory, begin, n, tile.data(), dim * sizeof(uint16_t));
      const auto end = tile.begin() + static_cast<ptrdiff_t>(n) * head_dim_;
      const auto last = std::find_if(std::make_reverse_iterator(end), tile.rend(),
                                     [](uint16_t value) { return value != 0; });
      if (last == tile.rend()) continue;
      held = std::max(held, begin + (tile.rend() - last + head_dim_ - 1) / head_dim_);
      break;
    }
  }
  return held;
}

kvarn_status KvTensor::Rewrite(int64_t stream, int64_t n_rows) {
  HostPlanes planes(*this, true);
  const auto dim = static_cast<size_t>(head_dim_);
  std::vector<uint16_t> rows(static_cast<size_t>(n_rows) * dim);
  std::vector<float> row(dim);
  for (int32_t head = 0; head < n_heads(); ++head) {
    uint8_t* memory = planes.Of(stream, head);
    kvarn_status status =
        kvarn_plane_read(plane_, memory, 0, n_rows, rows.data(), dim * sizeof(uint16_t));
    if (status == KVARN_OK) status = kvarn_plane_reset(plane_, memory);
    for (int64_t i = 0; i < n_rows && status == KVARN_OK; ++i) {
      Host().ggml_fp16_to_fp32_row(rows.data() + static_cast<size_t>(i) * dim, row.data(),
                                   head_dim_);
      status = kvarn_plane_write(plane_, memory, i, row.data(), nullptr, 0, 0);
    }
    if (status != KVARN_OK) return status;
  }
  return KVARN_OK;
}

template <typename Visit>
void KvTensor::ForEachTable(int64_t stream, Visit visit) const {
  const auto heads = static_cast<size_t>(n_heads());
  const size_t bytes = kvarn_plane_table_bytes(plane_);
  std::vector<uint8_t> copies;
  if (!memory_type_->IsHost()) {
    copies.resize(heads * bytes);
    memory_type_->LoadPieces(copies.data(), PlaneMemory(stream, 0), head_stride(), bytes, heads);
  }
  for (size_t head = 0; head < heads; ++head) {
    visit(copies.empty() ? PlaneMemory(stream, static_cast<int64_t>(head))
                         : copies.data() + head * bytes);
  }
}

KvTensor::Life KvTensor::LifeOf(int64_t stream) const {
  Life life;
  bool first = true;
  ForEachTable(stream, [&](const uint8_t* tables) {
    const uint64_t number = kvarn_plane_life(plane_, tables);
    if (first) life.number = number;
    life.agree = life.agree && number == life.number;
    first = false;
  });
  return life;
}

void KvTensor::AddStats(kvarn_plane_stats* total) const {
  if (plane_ == nullptr) return;
  for (int64_t stream = 0; stream < n_streams_; ++stream) {
    ForEachTable(stream, [&](const uint8_t* tables) {
      kvarn_plane_stats stats = {};
      if (kvarn_plane_get_stats(plane_, tables, &stats) != KVARN_OK) return;
      total->tiles_open += stats.tiles_open;
      total->tiles_sealed += stats.tiles_sealed;
      total->rows_written += stats.rows_written;
      total->seals += stats.seals;
      total->reopens += stats.reopens;
      total->counts.rows_zeroed += stats.counts.rows_zeroed;
      total->counts.values_saturated += stats.counts.values_saturated;
    });
  }
}

}  // namespace kvarn::ggml_plugin
