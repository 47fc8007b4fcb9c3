// SPDX-License-Identifier: Apache-2.0
//
// The orthonormal Hadamard rotation of a head (docs/format.md section 2).
#ifndef KVARN_CODEC_ROTATION_H_
#define KVARN_CODEC_ROTATION_H_

#include <cstdint>

namespace kvarn {

// H = (small (x) Sylvester(block)) * scale, head_dim = small_dim * block, block a power of two.
// A row vector x rotates as x H; index = i * block + b with i < small_dim, b < block.
struct Rotation {
  int head_dim = 0;
  int small_dim = 1;
  int block = 0;
  // [small_dim][small_dim] row-major +1/-1; for the block-diagonal fall-back the identity (1/0).
  // Null when small_dim is 1.
  const int8_t* small = nullptr;
  float scale = 0;  // 1/sqrt(head_dim), or 1/sqrt(block) for the fall-back
};

// The rotation of a legal head dim; null for any other or when memory is short. Built once per
// head dim, valid until the process ends, safe to call from any thread.
const Rotation* FindRotation(int head_dim);

}  // namespace kvarn
#endif  // KVARN_CODEC_ROTATION_H_
