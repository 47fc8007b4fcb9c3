// SPDX-License-Identifier: Apache-2.0
#include "codec/pack.h"

#include <cstring>

#include "codec/pack_cpu.h"
#include "format/record_layout.h"

namespace kvarn {
namespace {

CodeView ViewOf(const kvarn_format& format) {
  const int dim = format.head_dim;
  const int group = format.group;
  if (format.role == KVARN_KEY) return CodeView{group, dim, dim, 1};
  return CodeView{dim, group, 1, dim};
}

// Calls visit(byte, shift, code index) for every code of a plane of `bits` bits in order `cuda`
// (docs/format.md section 3): row = lane, s = contraction step, T = row tile, (g, j) = thread.
template <typename Visit>
void ForEachCudaCode(const CodeView& view, bool key, int bits, const Visit& visit) {
  const int rows = RoundUp(view.lanes, kFragment);
  const int depth = RoundUp(view.contraction, kFragment);
  const int row_tiles = rows / kFragment;
  const int per_unit = CudaPairsPerUnit(bits);
  for (int pair = 0; pair < row_tiles * (depth / kFragment); ++pair) {
    const int s = pair / row_tiles;
    const int tile = pair % row_tiles;
    const int in_unit = pair % per_unit;
    const int in_block = bits == 1 ? in_unit % 8 : in_unit;  // a 1-bit unit is two 2-bit units
    const int half = bits == 1 ? 4 : per_unit / 2;
    for (int fragment = 0; fragment < 256; ++fragment) {
      const int low_high = fragment & 1;
      const int kh = (fragment >> 1) & 1;
      const int r = (fragment >> 2) & 1;
      const int j = (fragment >> 3) & 3;
      const int g = fragment >> 5;
      const int row = rows / 8 * g + 2 * tile + r;
      const int m = key ? depth / 4 * j + 4 * s + 2 * kh + low_high
                        : depth / 4 * j + depth / 8 * low_high + 2 * s + kh;
      if (row >= view.lanes || m >= view.contraction) continue;
      const int field = in_block % half * 2 + r;
      int bit = field * bits;
      if (bits == 1) bit = 8 * (in_unit / 8) + 2 * (field % 4) + field / 4;
      const int word = 2 * (in_block / half) + kh;
      const size_t byte = static_cast<size_t>(pair / per_unit) * kCudaUnitBytes +
                          static_cast<size_t>(16 * (4 * g + j) + 4 * word + 2 * low_high + bit / 8);
      visit(byte, bit % 8, row * view.lane_step + m * view.contract_step);
    }
  }
}

void PackCudaPlane(const CodeView& view, bool key, int bits, int shift_in, const uint8_t* codes,
                   uint8_t* out) {
  const unsigned mask = (1U << bits) - 1U;
  ForEachCudaCode(view, key, bits, [&](size_t byte, int shift, int index) {
    const unsigned code = (static_cast<unsigned>(codes[index]) >> shift_in) & mask;
    out[byte] = static_cast<uint8_t>(out[byte] | (code << shift));
  });
}

void PackPlane(const kvarn_format& format, int bits, int shift_in, const uint8_t* codes,
               uint8_t* out) {
  const CodeView view = ViewOf(format);
  if (format.order == KVARN_ORDER_CPU) {
    PackCpuPlane(view, bits, shift_in, codes, out);
  } else {
    PackCudaPlane(view, format.role == KVARN_KEY, bits, shift_in, codes, out);
  }
}

void UnpackPlane(const kvarn_format& format, int bits, int shift_out, const uint8_t* packed,
                 uint8_t* codes) {
  const CodeView view = ViewOf(format);
  if (format.order == KVARN_ORDER_CPU) {
    UnpackCpuPlane(view, bits, shift_out, packed, codes);
    return;
  }
  const unsigned mask = (1U << bits) - 1U;
  const auto take = [&](size_t byte, int shift, int index) {
    const unsigned code = (static_cast<unsigned>(packed[byte]) >> shift) & mask;
    codes[index] = static_cast<uint8_t>(codes[index] | (code << shift_out));
  };
  ForEachCudaCode(view, format.role == KVARN_KEY, bits, take);
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
  // Order `cpu` is written whole, the others bit by bit.
  if (format.order != KVARN_ORDER_CPU) std::memset(out, 0, PackedBytes(format));
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
  if (format.bits != 3) {
    PackPlane(format, format.bits, 0, codes, out);
    return;
  }
  const CodeView view = ViewOf(format);
  PackPlane(format, 2, 0, codes, out);
  PackPlane(format, 1, 2, codes, out + PlaneBytes(format.order, 2, view.lanes, view.contraction));
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
  if (format.bits != 3) {
    UnpackPlane(format, format.bits, 0, packed, codes);
    return;
  }
  const CodeView view = ViewOf(format);
  UnpackPlane(format, 2, 0, packed, codes);
  UnpackPlane(format, 1, 2, packed + PlaneBytes(format.order, 2, view.lanes, view.contraction),
              codes);
}

}  // namespace kvarn
