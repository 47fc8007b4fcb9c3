// SPDX-License-Identifier: Apache-2.0
//
// The product of code_dot_args-inl.h with the dot product instructions of NEON: a unit of 64 bytes
// is four registers of four lanes. Both operands of SDOT are signed: codes of 8 bits are taken as
// two nibbles, and the upper one is weighted by 16 afterwards.

template <int kBits>
KVARN_INLINE int8x16_t Field(uint8x16_t packed, int bit) {
  constexpr int kFieldBits = kBits == 8 ? 4 : kBits;
  const uint8x16_t moved = vshlq_u8(packed, vdupq_n_s8(static_cast<int8_t>(-bit)));
  return vreinterpretq_s8_u8(vandq_u8(moved, vdupq_n_u8((1U << kFieldBits) - 1U)));
}

KVARN_INLINE int8x16_t BroadcastQuad(const int8_t* quad) {
  int32_t bits = 0;
  __builtin_memcpy(&bits, quad, sizeof(bits));
  return vreinterpretq_s8_s32(vdupq_n_s32(bits));
}

// 128 high + low.
template <int kBits>
KVARN_INLINE float32x4_t JoinParts(int32x4_t high, int32x4_t low) {
  if constexpr (kBits == 8) {
    return vfmaq_n_f32(vcvtq_f32_s32(low), vcvtq_f32_s32(high), 128.0F);
  } else {
    return vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(high, 7), low));
  }
}
template <int kBits, int kRows>
static void CodeDotStrip(const CodeDotArgs& args, int units, int first_row, int strip) {
  constexpr int kFieldBits = kBits == 8 ? 4 : kBits;
  constexpr int kFields = 8 / kFieldBits;  // of a byte; of 8 bits, two of one code
  const int64_t begin = static_cast<int64_t>(strip) * units * kUnitBytes;
  const uint8_t* codes = args.codes + begin;
  const int8_t* weights = args.weights + static_cast<int64_t>(2 * first_row) * args.weight_stride;
  int32x4_t sums[2 * kRows][4] = {};  // of lower nibbles where there are two
  int32x4_t upper[2 * kRows][4] = {};
  for (int u = 0; u < units; ++u) {
    __builtin_prefetch(args.next + begin + static_cast<int64_t>(u) * kUnitBytes, 0, 2);
    const uint8x16x4_t packed = vld1q_u8_x4(codes + static_cast<int64_t>(u) * kUnitBytes);
#pragma GCC unroll 8
    for (int f = 0; f < kFields; ++f) {
      int8x16_t code[4];
      for (int q = 0; q < 4; ++q) code[q] = Field<kBits>(packed.val[q], f * kFieldBits);
      const int64_t quad = 4 * (kBits == 8 ? u : u * kFields + f);
#pragma GCC unroll 8
      for (int i = 0; i < 2 * kRows; ++i) {
        const int8x16_t weight = BroadcastQuad(weights + i * args.weight_stride + quad);
        for (int q = 0; q < 4; ++q) {
          int32x4_t& sum = kBits == 8 && f == 1 ? upper[i][q] : sums[i][q];
          sum = vdotq_s32(sum, code[q], weight);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const DotRow& row = args.rows[first_row + r];
    for (int q = 0; q < 4; ++q) {
      int32x4_t part[2];
      for (int i = 0; i < 2; ++i) {
        part[i] = sums[2 * r + i][q];
        if constexpr (kBits == 8) {
          part[i] = vaddq_s32(part[i], vshlq_n_s32(upper[2 * r + i][q], 4));
        }
      }
      const int lane = strip * kLanesPerStrip + 4 * q;
      float* out = row.out + lane;
      const float32x4_t sum =
          vfmaq_n_f32(vdupq_n_f32(row.inside), JoinParts<kBits>(part[0], part[1]), row.scale);
      const float32x4_t base = args.add ? vld1q_f32(out) : vdupq_n_f32(row.outside);
      vst1q_f32(out, vfmaq_f32(base, vld1q_f32(args.gain + lane), sum));
    }
  }
}

template <int kBits>
static void CodeDot(const CodeDotArgs& args) {
  constexpr int kMost = kBits == 8 ? 1 : 2;  // rows whose sums fit the registers
  const int units = (args.contraction + 32 / kBits - 1) / (32 / kBits);
  int r = 0;
  for (; r + kMost <= args.n_rows; r += kMost) {
    for (int strip = 0; strip < args.strips; ++strip) {
      CodeDotStrip<kBits, kMost>(args, units, r, strip);
    }
  }
  for (; r < args.n_rows; ++r) {
    for (int strip = 0; strip < args.strips; ++strip) {
      CodeDotStrip<kBits, 1>(args, units, r, strip);
    }
  }
}
