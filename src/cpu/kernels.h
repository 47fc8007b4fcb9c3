// SPDX-License-Identifier: Apache-2.0
//
// What one instruction-set level offers, and how a level is chosen. A level is one translation unit
// (isa_*.cc) that compiles the headers of generic/ with its own flags; nothing else in the library
// is compiled with instruction-set flags, and those headers use no inline function of the standard
// library, so that the linker can never share one level's code with another.
#ifndef KVARN_CPU_KERNELS_H_
#define KVARN_CPU_KERNELS_H_

#include <cstdint>

#include "codec/rotation.h"
#include "format/record_layout.h"

namespace kvarn {

struct AttentionTask;

// Working rows are fp32 [n][stride], stride = RoundUp(head_dim, kRowAlign), padding zero.
inline constexpr int kRowAlign = 32;
constexpr int RowStride(int head_dim) { return RoundUp(head_dim, kRowAlign); }

// A tile on its way into a record. Scales are kept as the fp16 that the record stores.
struct EncodeTile {
  int head_dim = 0;
  int n_rows = 0;  // rows that exist, packed to the front: 1..group
  int bits = 0;
  float* rows = nullptr;      // [n_rows][stride] balanced and rotated
  float* scratch = nullptr;   // [n_rows][stride]
  uint8_t* codes = nullptr;   // [n_rows][head_dim] out
  uint16_t* scale = nullptr;  // K [head_dim], V [n_rows], out
  uint16_t* zero = nullptr;   // K [head_dim], V [n_rows], out
  uint16_t* other = nullptr;  // K t [n_rows], V C [head_dim], out
  uint64_t saturated = 0;     // scales that did not fit fp16, added to
};

struct Kernels {
  const char* name;

  // rows [n][stride] *= H (or H^T), in place; the padding stays zero.
  void (*rotate)(const Rotation& rotation, float* rows, int n, int stride, bool inverse);
  // fp32 -> fp16, round to nearest even; `count` values, none of them NaN, |x| <= 65504.
  void (*to_half)(const float* in, uint16_t* out, int count);
  void (*to_float)(const uint16_t* in, float* out, int count);
  // out = in * scale (scale null: 1). False where a value of `in` is not within the fp16 range:
  // then `out` is of no use. `in` and `out` may be the same.
  bool (*scale_row)(const float* in, const float* scale, float* out, int count);
  // The same from fp16, all of it finite.
  void (*scale_half_row)(const uint16_t* in, const float* scale, float* out, int count);

  void (*encode_key)(EncodeTile* tile);
  void (*encode_value)(EncodeTile* tile);

  // One block of query rows over one range of tiles: attention/task.h.
  void (*attend)(const AttentionTask& task);
};

// The level in use. Never null: "scalar" exists everywhere.
const Kernels& ActiveKernels();
// Level by name if this machine can run it, else null.
const Kernels* FindKernels(const char* name, bool* known);
void ForceKernels(const Kernels* kernels);  // null: best

// One per translation unit; null where the build has no such level.
const Kernels* ScalarKernels();
const Kernels* Avx2Kernels();
const Kernels* Avx512Kernels();
const Kernels* NeonKernels();

}  // namespace kvarn
#endif  // KVARN_CPU_KERNELS_H_
