// SPDX-License-Identifier: Apache-2.0
//
// The product of generic/code_dot_args-inl.h in plain C++.

KVARN_INLINE void StoreDot(const CodeDotArgs& args, const DotRow& row, int lane, int32_t high,
                           int32_t low) {
  const float sum = static_cast<float>(high) * 128.0F + static_cast<float>(low);
  const float base = args.add ? row.out[lane] : row.outside;
  row.out[lane] = args.gain[lane] * (sum * row.scale + row.inside) + base;
}

template <int kBits>
static void CodeDot(const CodeDotArgs& args) {
  constexpr int kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1U << kBits) - 1U;
  const int units = (args.contraction + 32 / kBits - 1) / (32 / kBits);
  for (int strip = 0; strip < args.strips; ++strip) {
    const uint8_t* strip_codes = args.codes + static_cast<int64_t>(strip) * units * kUnitBytes;
    for (int r = 0; r < args.n_rows; ++r) {
      const int8_t* high_row = args.weights + static_cast<int64_t>(2 * r) * args.weight_stride;
      const int8_t* low_row = high_row + args.weight_stride;
      int32_t high[kLanesPerStrip] = {};
      int32_t low[kLanesPerStrip] = {};
      for (int u = 0; u < units; ++u) {
        const uint8_t* unit = strip_codes + static_cast<int64_t>(u) * kUnitBytes;
        for (int f = 0; f < kPerByte; ++f) {
          const int m = 4 * (u * kPerByte + f);
          for (int lane = 0; lane < kLanesPerStrip; ++lane) {
            for (int j = 0; j < 4; ++j) {
              const auto code =
                  static_cast<int32_t>((unsigned{unit[lane * 4 + j]} >> (f * kBits)) & kMask);
              high[lane] += code * high_row[m + j];
              low[lane] += code * low_row[m + j];
            }
          }
        }
      }
      for (int lane = 0; lane < kLanesPerStrip; ++lane) {
        StoreDot(args, args.rows[r], strip * kLanesPerStrip + lane, high[lane], low[lane]);
      }
    }
  }
}
