// SPDX-License-Identifier: Apache-2.0
//
// Baseline instructions of 16 bytes are enough: packing is a small part of an encode.
#include "codec/pack_cpu.h"

#include <bit>
#include <cstddef>
#include <cstring>

#include "format/record_layout.h"

namespace kvarn {
namespace {

// Sixteen codes, or units of lanes, at a time. Head dims and groups are multiples of 8. The format
// is little-endian, and so are the machines that `cpu` order is for.
static_assert(std::endian::native == std::endian::little);
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint16_t Words __attribute__((vector_size(16)));
typedef uint32_t Quads __attribute__((vector_size(16)));
typedef uint64_t Longs __attribute__((vector_size(16)));

Bytes LoadBytes(const uint8_t* from, int count) {
  Bytes bytes = {};
  if (count >= 16) {
    std::memcpy(&bytes, from, 16);
  } else {
    uint64_t low = 0;
    std::memcpy(&low, from, 8);
    bytes = reinterpret_cast<Bytes>(Longs{low, 0});
  }
  return bytes;
}

// Adds bits to codes that are there; 16 of them, or 8 where `count` is less.
void OrBytes(uint8_t* to, Bytes bytes, int count) {
  const Bytes sum = LoadBytes(to, count) | bytes;
  if (count >= 16) {
    std::memcpy(to, &sum, 16);
  } else {
    const uint64_t low = reinterpret_cast<Longs>(sum)[0];
    std::memcpy(to, &low, 8);
  }
}

// Bits `shift_in` on of codes, kBits of them, at bit shift_out of each byte.
template <int kBits, typename Vector>
Vector Field(Vector codes, int shift_in, int shift_out) {
  const auto mask = static_cast<uint8_t>(((1U << kBits) - 1U) << shift_in);
  const auto kept = reinterpret_cast<Words>(reinterpret_cast<Bytes>(codes) & mask);
  return reinterpret_cast<Vector>((kept >> shift_in) << shift_out);
}

// Values: a row of codes is a row of lanes, four rows are a quad.
template <int kBits>
void PackCpuRowsOfLanes(const CodeView& view, int shift_in, const uint8_t* codes, uint8_t* out) {
  constexpr int kPerByte = 8 / kBits;
  for (int strip = 0; strip < view.lanes; strip += kLanesPerStrip) {
    for (int m = 0; m < view.contraction; m += 4 * kPerByte) {
      Bytes row[4] = {};
#pragma GCC unroll 8
      for (int field = 0; field < kPerByte; ++field) {  // groups are multiples of 32
        const uint8_t* from = codes + (m + 4 * field) * view.contract_step + strip;
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          const Bytes lanes = LoadBytes(from + j * view.contract_step, view.lanes - strip);
          row[j] |= Field<kBits>(lanes, shift_in, field * kBits);
        }
      }
      Words pair[2][2];
      for (int j = 0; j < 2; ++j) {
        const Bytes a = row[2 * j];
        const Bytes b = row[2 * j + 1];
        pair[0][j] = reinterpret_cast<Words>(
            __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
        pair[1][j] = reinterpret_cast<Words>(__builtin_shufflevector(
            a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
      }
      for (const auto& half : pair) {
        const Words low = __builtin_shufflevector(half[0], half[1], 0, 8, 1, 9, 2, 10, 3, 11);
        const Words high = __builtin_shufflevector(half[0], half[1], 4, 12, 5, 13, 6, 14, 7, 15);
        std::memcpy(out, &low, sizeof(low));
        std::memcpy(out + 16, &high, sizeof(high));
        out += 32;
      }
    }
  }
}

// Quad q of four lanes becomes row q.
void Transpose(Quads* v) {
  const Quads a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
  const Quads b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  const Quads c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const Quads d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// Keys: a row of codes is a lane, four neighbours are a quad.
template <int kBits>
void PackCpuLanesOfQuads(const CodeView& view, int shift_in, const uint8_t* codes, uint8_t* out) {
  constexpr int kPerByte = 8 / kBits;
  constexpr int kStep = kPerByte > 4 ? 32 : 16;
  constexpr int kUnits = kStep / (4 * kPerByte);
  const int units = RoundUp(view.contraction, 4 * kPerByte) / (4 * kPerByte);
  for (int lane = 0; lane < view.lanes; lane += 4) {
    uint8_t* to = out + static_cast<ptrdiff_t>(lane / kLanesPerStrip * units) * kUnitBytes +
                  static_cast<ptrdiff_t>(lane % kLanesPerStrip) * 4;
    for (int first = 0; first < view.contraction; first += kStep) {
      Quads unit[size_t{kUnits}] = {};
#pragma GCC unroll 2
      for (int m = 0; m < kStep; m += 16) {
        if (first + m >= view.contraction) break;
        Quads quad[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const uint8_t* from = codes + (lane + i) * view.lane_step + first + m;
          quad[i] = reinterpret_cast<Quads>(LoadBytes(from, view.contraction - first - m));
        }
        Transpose(quad);
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) {
          const int at = m / 4 + q;
          unit[at / kPerByte] |= Field<kBits>(quad[q], shift_in, at % kPerByte * kBits);
        }
      }
#pragma GCC unroll 4
      for (int u = 0; u < kUnits; ++u) {
        if (first + 4 * kPerByte * u >= view.contraction) break;
        std::memcpy(to, &unit[u], sizeof(unit[u]));
        to += kUnitBytes;
      }
    }
  }
}

template <int kBits>
void PackCpuPlane(const CodeView& view, int shift_in, const uint8_t* codes, uint8_t* out) {
  if (view.lane_step == 1) {
    PackCpuRowsOfLanes<kBits>(view, shift_in, codes, out);
  } else {
    PackCpuLanesOfQuads<kBits>(view, shift_in, codes, out);
  }
}

Bytes EvenBytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
Bytes OddBytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

template <int kBits>
void UnpackCpuRowsOfLanes(const CodeView& view, int shift_out, const uint8_t* packed,
                          uint8_t* codes) {
  constexpr int kPerByte = 8 / kBits;
  for (int strip = 0; strip < view.lanes; strip += kLanesPerStrip) {
    for (int m = 0; m < view.contraction; m += 4 * kPerByte, packed += kUnitBytes) {
      Bytes unit[4];
      std::memcpy(unit, packed, sizeof(unit));
      const Bytes even[2] = {EvenBytes(unit[0], unit[1]), EvenBytes(unit[2], unit[3])};
      const Bytes odd[2] = {OddBytes(unit[0], unit[1]), OddBytes(unit[2], unit[3])};
      const Bytes row[4] = {EvenBytes(even[0], even[1]), EvenBytes(odd[0], odd[1]),
                            OddBytes(even[0], even[1]), OddBytes(odd[0], odd[1])};
#pragma GCC unroll 8
      for (int field = 0; field < kPerByte; ++field) {
        uint8_t* to = codes + (m + 4 * field) * view.contract_step + strip;
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          OrBytes(to + j * view.contract_step, Field<kBits>(row[j], field * kBits, shift_out),
                  view.lanes - strip);
        }
      }
    }
  }
}

template <int kBits>
void UnpackCpuLanesOfQuads(const CodeView& view, int shift_out, const uint8_t* packed,
                           uint8_t* codes) {
  constexpr int kPerByte = 8 / kBits;
  const int units = RoundUp(view.contraction, 4 * kPerByte) / (4 * kPerByte);
  for (int lane = 0; lane < view.lanes; lane += 4) {
    const uint8_t* from = packed +
                          static_cast<ptrdiff_t>(lane / kLanesPerStrip * units) * kUnitBytes +
                          static_cast<ptrdiff_t>(lane % kLanesPerStrip) * 4;
    for (int m = 0; m < view.contraction; m += 16) {
      Quads quad[4] = {};
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const int at = m / 4 + q;
        if (4 * at >= view.contraction) break;
        Quads unit;
        std::memcpy(&unit, from + static_cast<ptrdiff_t>(at / kPerByte) * kUnitBytes, sizeof(unit));
        quad[q] = Field<kBits>(unit, at % kPerByte * kBits, shift_out);
      }
      Transpose(quad);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        OrBytes(codes + (lane + i) * view.lane_step + m, reinterpret_cast<Bytes>(quad[i]),
                view.contraction - m);
      }
    }
  }
}

template <int kBits>
void UnpackCpuPlane(const CodeView& view, int shift_out, const uint8_t* packed, uint8_t* codes) {
  if (view.lane_step == 1) {
    UnpackCpuRowsOfLanes<kBits>(view, shift_out, packed, codes);
  } else {
    UnpackCpuLanesOfQuads<kBits>(view, shift_out, packed, codes);
  }
}

}  // namespace

void PackCpuPlane(const CodeView& view, int bits, int shift_in, const uint8_t* codes,
                  uint8_t* out) {
  switch (bits) {
    case 1:
      return PackCpuPlane<1>(view, shift_in, codes, out);
    case 2:
      return PackCpuPlane<2>(view, shift_in, codes, out);
    case 4:
      return PackCpuPlane<4>(view, shift_in, codes, out);
    default:
      return PackCpuPlane<8>(view, shift_in, codes, out);
  }
}

void UnpackCpuPlane(const CodeView& view, int bits, int shift_out, const uint8_t* packed,
                    uint8_t* codes) {
  switch (bits) {
    case 1:
      return UnpackCpuPlane<1>(view, shift_out, packed, codes);
    case 2:
      return UnpackCpuPlane<2>(view, shift_out, packed, codes);
    case 4:
      return UnpackCpuPlane<4>(view, shift_out, packed, codes);
    default:
      return UnpackCpuPlane<8>(view, shift_out, packed, codes);
  }
}

}  // namespace kvarn
