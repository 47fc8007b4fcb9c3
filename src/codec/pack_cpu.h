// SPDX-License-Identifier: Apache-2.0
//
// One bit plane of a record in order `cpu` (docs/format.md section 3).
#ifndef KVARN_CODEC_PACK_CPU_H_
#define KVARN_CODEC_PACK_CPU_H_

#include <cstdint>

namespace kvarn {

// Codes as bytes: codes[lane * lane_step + m * contract_step]. One of the steps is 1; lanes and
// contraction are multiples of 8, and the one whose step is not 1 is 64 or 128.
struct CodeView {
  int lanes;
  int contraction;
  int lane_step;
  int contract_step;
};

// `bits` (1, 2, 4 or 8) of each code, from bit shift_in on, to a plane of CpuPlaneBytes bytes, all
// written.
void PackCpuPlane(const CodeView& view, int bits, int shift_in, const uint8_t* codes, uint8_t* out);
// The way back: adds (or) the plane's bits to the codes from bit shift_out on.
void UnpackCpuPlane(const CodeView& view, int bits, int shift_out, const uint8_t* packed,
                    uint8_t* codes);

}  // namespace kvarn
#endif  // KVARN_CODEC_PACK_CPU_H_
