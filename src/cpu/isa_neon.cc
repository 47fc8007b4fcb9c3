// SPDX-License-Identifier: Apache-2.0
//
// Level "neon": AArch64 with the dot product instructions of Armv8.2.
#include <utility>

#include "attention/task.h"
#include "codec/balance.h"
#include "cpu/kernels.h"
#include "format/half.h"
#include "paged/rows.h"

#if defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

namespace kvarn {
namespace {
constexpr int kWidth = 4;

// clang-format off: the order of these matters
#include "cpu/generic/vec-inl.h"
#include "cpu/simd/vec_neon-inl.h"
#include "cpu/generic/sums-inl.h"
#include "cpu/simd/half_neon-inl.h"
#include "cpu/generic/load_rows-inl.h"
#include "cpu/generic/hadamard-inl.h"
#include "cpu/generic/encode_common-inl.h"
#include "cpu/generic/encode_key_column-inl.h"
#include "cpu/generic/encode_key-inl.h"
#include "cpu/generic/encode_value-inl.h"
#include "cpu/generic/code_dot_args-inl.h"
#include "cpu/simd/code_dot_neon-inl.h"
#include "cpu/generic/attend_state-inl.h"
#include "cpu/generic/attend_mask-inl.h"
#include "cpu/generic/attend_weights-inl.h"
#include "cpu/generic/attend_record-inl.h"
#include "cpu/generic/attend_softmax-inl.h"
#include "cpu/generic/attend_exact-inl.h"
#include "cpu/generic/attend_tiles-inl.h"
// clang-format on

constexpr Kernels kKernels = {"neon",       Rotate,    ToHalf,      ToFloat, ScaleRow,
                              ScaleHalfRow, EncodeKey, EncodeValue, Attend};

}  // namespace

const Kernels* NeonKernels() { return &kKernels; }

}  // namespace kvarn

#else

namespace kvarn {
const Kernels* NeonKernels() { return nullptr; }
}  // namespace kvarn

#endif
