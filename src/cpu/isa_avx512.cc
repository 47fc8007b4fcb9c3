// SPDX-License-Identifier: Apache-2.0
//
// Level "avx512": AVX-512 F/BW/DQ/VL with VNNI.
#include <utility>

#include "attention/task.h"
#include "codec/balance.h"
#include "cpu/kernels.h"
#include "format/half.h"
#include "paged/rows.h"

#if defined(__AVX512VNNI__)

#include <immintrin.h>

namespace kvarn {
namespace {
constexpr int kWidth = 16;

// clang-format off: the order of these matters
#include "cpu/generic/vec-inl.h"
#include "cpu/simd/vec_avx512-inl.h"
#include "cpu/generic/sums-inl.h"
#include "cpu/generic/half_f16c-inl.h"
#include "cpu/generic/load_rows-inl.h"
#include "cpu/generic/hadamard-inl.h"
#include "cpu/generic/encode_common-inl.h"
#include "cpu/generic/encode_key_column-inl.h"
#include "cpu/generic/encode_key-inl.h"
#include "cpu/generic/encode_value-inl.h"
#include "cpu/generic/code_dot_args-inl.h"
#include "cpu/simd/code_dot_avx512-inl.h"
#include "cpu/generic/attend_state-inl.h"
#include "cpu/generic/attend_mask-inl.h"
#include "cpu/generic/attend_weights-inl.h"
#include "cpu/generic/attend_record-inl.h"
#include "cpu/generic/attend_softmax-inl.h"
#include "cpu/generic/attend_exact-inl.h"
#include "cpu/generic/attend_tiles-inl.h"
// clang-format on

constexpr Kernels kKernels = {"avx512",     Rotate,    ToHalf,      ToFloat, ScaleRow,
                              ScaleHalfRow, EncodeKey, EncodeValue, Attend};

}  // namespace

const Kernels* Avx512Kernels() { return &kKernels; }

}  // namespace kvarn

#else

namespace kvarn {
const Kernels* Avx512Kernels() { return nullptr; }
}  // namespace kvarn

#endif
