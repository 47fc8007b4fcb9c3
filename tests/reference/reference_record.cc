// SPDX-License-Identifier: Apache-2.0
#include "reference_record.h"

namespace kvarn_reference {
namespace {

// Visits the byte vectors that follow the codes, in stored order, through `half` and `byte`.
template <typename AnyRecord, typename Half, typename Byte>
void VisitScales(AnyRecord& record, Half half, Byte byte) {
  auto all = [&](auto& values) {
    for (auto& value : values) half(value);
  };
  if (record.shape.key) {
    all(record.scale);
    all(record.zero);
    all(record.other);
  } else {
    all(record.other);
    all(record.scale);
    all(record.zero);
  }
  for (auto& value : record.balance) byte(value);
}

void AppendScales(const Record& record, std::vector<uint8_t>* out) {
  VisitScales(
      record,
      [&](uint16_t value) {
        out->push_back(static_cast<uint8_t>(value & 0xFF));
        out->push_back(static_cast<uint8_t>(value >> 8));
      },
      [&](int8_t value) { out->push_back(static_cast<uint8_t>(value)); });
}

void ReadScales(const uint8_t* from, Record* record) {
  VisitScales(
      *record,
      [&](uint16_t& value) {
        value = static_cast<uint16_t>(from[0] | (from[1] << 8));
        from += 2;
      },
      [&](int8_t& value) { value = static_cast<int8_t>(*from++); });
}

// One bit plane of order `cpu`: `width` bits of each code, starting at bit `low`.
struct CpuPlane {
  int width;
  int low;
};

std::vector<CpuPlane> CpuPlanes(int bits) {
  if (bits == 3) return {{2, 0}, {1, 2}};
  return {{bits, 0}};
}

// Calls visit(byte offset, bit, lane, m, plane) for every code of the strips.
template <typename Visit>
size_t VisitCpuCodes(const Shape& shape, Visit visit) {
  const int lanes = shape.key ? shape.group : shape.head_dim;
  const int contraction = shape.key ? shape.head_dim : shape.group;
  size_t start = 0;
  for (const CpuPlane& plane : CpuPlanes(shape.bits)) {
    const int fields = 8 / plane.width;
    for (int strip = 0; strip * 16 < lanes; ++strip) {
      for (int first = 0; first < contraction; first += 4 * fields) {
        for (int lane = 0; lane < 16 && strip * 16 + lane < lanes; ++lane) {
          for (int f = 0; f < fields; ++f) {
            for (int j = 0; j < 4; ++j) {
              const int m = first + 4 * f + j;
              if (m >= contraction) continue;
              visit(start + static_cast<size_t>(4 * lane + j), plane.width * f, strip * 16 + lane,
                    m, plane);
            }
          }
        }
        start += 64;
      }
    }
  }
  return start;
}

}  // namespace

Record::Record(const Shape& of) : shape(of) {
  const auto dim = static_cast<size_t>(of.head_dim);
  const auto group = static_cast<size_t>(of.group);
  codes.resize(dim * group);
  scale.resize(of.key ? dim : group);
  zero.resize(of.key ? dim : group);
  other.resize(of.key ? group : dim);
  balance.resize(of.HasBalance() ? dim : 0);
}

uint8_t& Record::CodeAt(int channel, int token) {
  const int index = shape.key ? channel * shape.group + token : token * shape.head_dim + channel;
  return codes[static_cast<size_t>(index)];
}
uint8_t Record::CodeAt(int channel, int token) const {
  return const_cast<Record*>(this)->CodeAt(channel, token);
}

std::vector<uint8_t> ToPortable(const Record& record) {
  const auto bits = static_cast<size_t>(record.shape.bits);
  std::vector<uint8_t> out(record.codes.size() * bits / 8);
  for (size_t i = 0; i < record.codes.size() * bits; ++i) {
    const int bit = (record.codes[i / bits] >> (i % bits)) & 1;
    out[i / 8] = static_cast<uint8_t>(out[i / 8] | (bit << (i % 8)));
  }
  AppendScales(record, &out);
  return out;
}

Record FromPortable(const Shape& shape, const uint8_t* bytes) {
  Record record(shape);
  const auto bits = static_cast<size_t>(shape.bits);
  for (size_t i = 0; i < record.codes.size() * bits; ++i) {
    const int bit = (bytes[i / 8] >> (i % 8)) & 1;
    uint8_t& code = record.codes[i / bits];
    code = static_cast<uint8_t>(code | (bit << (i % bits)));
  }
  ReadScales(bytes + record.codes.size() * bits / 8, &record);
  return record;
}

std::vector<uint8_t> ToCpu(const Record& record) {
  const bool key = record.shape.key;
  std::vector<uint8_t> out(VisitCpuCodes(record.shape, [](auto...) {}));
  VisitCpuCodes(record.shape, [&](size_t at, int bit, int lane, int m, const CpuPlane& plane) {
    const int code = key ? record.CodeAt(m, lane) : record.CodeAt(lane, m);
    const int part = (code >> plane.low) & ((1 << plane.width) - 1);
    out[at] = static_cast<uint8_t>(out[at] | (part << bit));
  });
  AppendScales(record, &out);
  while (out.size() % 64 != 0) out.push_back(0);
  return out;
}

Record FromCpu(const Shape& shape, const uint8_t* bytes) {
  Record record(shape);
  const size_t end =
      VisitCpuCodes(shape, [&](size_t at, int bit, int lane, int m, const CpuPlane& plane) {
        const int part = (bytes[at] >> bit) & ((1 << plane.width) - 1);
        uint8_t& code = shape.key ? record.CodeAt(m, lane) : record.CodeAt(lane, m);
        code = static_cast<uint8_t>(code | (part << plane.low));
      });
  ReadScales(bytes + end, &record);
  return record;
}

}  // namespace kvarn_reference
