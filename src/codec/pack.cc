// SPDX-License-Identifier: Apache-2.0
#include "codec/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "format/record_layout.h"

namespace kvarn {
namespace {

// codes[lane * lane_step + m * contract_step]
struct CodeView {
  int lanes;
  int contraction;
  int lane_step;
  int contract_step;
};

CodeView ViewOf(const kvarn_format& format) {
  const int dim = format.head_dim;
  const int group = format.group;
  if (format.role == KVARN_KEY) return CodeView{group, dim, dim, 1};
  return CodeView{dim, group, 1, dim};
}

// Calls visit(byte, shift, code index) for every code of a plane of `bits` bits in order `cpu`.
template <typename Visit>
void ForEachCpuCode(const CodeView& view, int bits, const Visit& visit) {
  const int per_byte = 8 / bits;
  const int per_unit = 32 / bits;
  const int units = RoundUp(view.contraction, per_unit) / per_unit;
  for (int lane = 0; lane < view.lanes; ++lane) {
    const int strip = lane / kLanesPerStrip;
    const size_t lane_base = static_cast<size_t>(strip * units) * kUnitBytes +
                             static_cast<size_t>(lane % kLanesPerStrip) * 4;
    for (int m = 0; m < view.contraction; ++m) {
      const int quad = m / 4;
      const size_t byte =
          lane_base + static_cast<size_t>(quad / per_byte) * kUnitBytes + static_cast<size_t>(m % 4);
      visit(byte, (quad % per_byte) * bits, lane * view.lane_step + m * view.contract_step);
    }
  }
}

// Four codes of one lane (contraction indices 4 quad .. 4 quad + 3), one a byte, low bits of each.
uint32_t LoadQuad(const CodeView& view, const uint8_t* codes, int lane, int quad, int shift,
                  uint32_t mask) {
  const uint8_t* at = codes + lane * view.lane_step + 4 * quad * view.contract_step;
  uint32_t word = 0;
  if (view.contract_step == 1) {
    std::memcpy(&word, at, sizeof(word));
  } else {
    for (int j = 0; j < 4; ++j) word |= uint32_t{at[j * view.contract_step]} << (8 * j);
  }
  return (word >> shift) & mask;
}

// Head dims and groups are multiples of 4, so every quad is whole. The format is little-endian, and
// so are the machines that `cpu` order is for.
static_assert(std::endian::native == std::endian::little);
void PackCpuPlane(const CodeView& view, int bits, int shift_in, const uint8_t* codes,
                  uint8_t* out) {
  const uint32_t mask = ((1U << bits) - 1U) * 0x01010101U;
  const int per_byte = 8 / bits;
  const int quads = view.contraction / 4;
  for (int strip = 0; strip < view.lanes; strip += kLanesPerStrip) {
    const int lanes = std::min(kLanesPerStrip, view.lanes - strip);
    for (int first = 0; first < quads; first += per_byte) {
      uint32_t unit[kLanesPerStrip] = {};
      for (int field = 0; field < per_byte && first + field < quads; ++field) {
        for (int lane = 0; lane < lanes; ++lane) {
          unit[lane] |= LoadQuad(view, codes, strip + lane, first + field, shift_in, mask)
                        << (field * bits);
        }
      }
      std::memcpy(out, unit, sizeof(unit));
      out += kUnitBytes;
    }
  }
}

void UnpackCpuPlane(const CodeView& view, int bits, int shift_out, const uint8_t* packed,
                    uint8_t* codes) {
  const unsigned mask = (1U << bits) - 1U;
  ForEachCpuCode(view, bits, [&](size_t byte, int shift, int index) {
    const unsigned code = (static_cast<unsigned>(packed[byte]) >> shift) & mask;
    codes[index] = static_cast<uint8_t>(codes[index] | (code << shift_out));
  });
}

// Order `portable`: one little-endian bit stream, K channel-major [D][G], V token-major [G][D].
template <typename Visit>
void ForEachPortableCode(const kvarn_format& format, const Visit& visit) {
  const int dim = format.head_dim;
  const int group = format.group;
  size_t bit = 0;
  const auto next = [&](int index) {
    visit(bit, index);
    bit += static_cast<size_t>(format.bits);
  };
  if (format.role == KVARN_KEY) {
    for (int d = 0; d < dim; ++d) {
      for (int g = 0; g < group; ++g) next(g * dim + d);
    }
  } else {
    for (int index = 0; index < group * dim; ++index) next(index);
  }
}

size_t PackedBytes(const kvarn_format& format) {
  const RecordLayout layout = MakeRecordLayout(format);
  return format.role == KVARN_KEY ? layout.scale : layout.other;
}

}  // namespace

void PackCodes(const kvarn_format& format, const uint8_t* codes, uint8_t* out) {
  std::memset(out, 0, PackedBytes(format));
  if (format.order == KVARN_ORDER_PORTABLE) {
    ForEachPortableCode(format, [&](size_t bit, int index) {
      const unsigned value = static_cast<unsigned>(codes[index]) << (bit % 8);
      out[bit / 8] = static_cast<uint8_t>(out[bit / 8] | value);
      if (value > 0xFFU) {
        out[bit / 8 + 1] = static_cast<uint8_t>(out[bit / 8 + 1] | (value >> 8));
      }
    });
    return;
  }
  const CodeView view = ViewOf(format);
  if (format.bits != 3) {
    PackCpuPlane(view, format.bits, 0, codes, out);
    return;
  }
  PackCpuPlane(view, 2, 0, codes, out);
  PackCpuPlane(view, 1, 2, codes, out + CpuPlaneBytes(2, view.lanes, view.contraction));
}

void UnpackCodes(const kvarn_format& format, const uint8_t* packed, uint8_t* codes) {
  std::memset(codes, 0, static_cast<size_t>(format.group) * static_cast<size_t>(format.head_dim));
  if (format.order == KVARN_ORDER_PORTABLE) {
    const unsigned mask = (1U << format.bits) - 1U;
    const size_t last = PackedBytes(format) - 1;
    ForEachPortableCode(format, [&](size_t bit, int index) {
      unsigned value = packed[bit / 8];
      if (bit / 8 < last) value |= static_cast<unsigned>(packed[bit / 8 + 1]) << 8;
      codes[index] = static_cast<uint8_t>((value >> (bit % 8)) & mask);
    });
    return;
  }
  const CodeView view = ViewOf(format);
  if (format.bits != 3) {
    UnpackCpuPlane(view, format.bits, 0, packed, codes);
    return;
  }
  UnpackCpuPlane(view, 2, 0, packed, codes);
  UnpackCpuPlane(view, 1, 2, packed + CpuPlaneBytes(2, view.lanes, view.contraction), codes);
}

}  // namespace kvarn
