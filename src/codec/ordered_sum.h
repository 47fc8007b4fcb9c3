// SPDX-License-Identifier: Apache-2.0
//
// Sums in the order that docs/format.md section 1 fixes, in plain C++. The kernels compute the same
// sums with vectors.
#ifndef KVARN_CODEC_ORDERED_SUM_H_
#define KVARN_CODEC_ORDERED_SUM_H_

namespace kvarn {

template <int kPartials, typename Term>
float InterleavedSum(int count, const Term& term) {
  float partial[static_cast<unsigned>(kPartials)] = {};
  for (int i = 0; i < count; ++i) partial[i % kPartials] = partial[i % kPartials] + term(i);
  for (int half = kPartials / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) partial[i] = partial[i] + partial[i + half];
  }
  return partial[0];
}

// Over channels: 32 interleaved partial sums, joined by halving.
template <typename Term>
float ChannelSum(int count, const Term& term) {
  return InterleavedSum<32>(count, term);
}

// Over tokens: 8 interleaved partial sums, joined by halving.
template <typename Term>
float TokenSum(int count, const Term& term) {
  return InterleavedSum<8>(count, term);
}

}  // namespace kvarn
#endif  // KVARN_CODEC_ORDERED_SUM_H_
