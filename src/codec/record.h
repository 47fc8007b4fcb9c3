// SPDX-License-Identifier: Apache-2.0
//
// Rows to a record and back: the whole pipeline rotate -> normalise -> quantise -> pack.
#ifndef KVARN_CODEC_RECORD_H_
#define KVARN_CODEC_RECORD_H_

#include <cstdint>

#include "kvarn/kvarn.h"

namespace kvarn {

// As kvarn_encode and kvarn_decode, for checked arguments. `rows` may be strided.
kvarn_status EncodeRecord(const kvarn_format& format, const float* rows, int row_stride, int n_rows,
                          const int32_t* position, const int8_t* balance, uint8_t* record,
                          kvarn_counts* counts);
// The same for rows position[0..n_rows-1] of a tile of exact rows, fp16 [group][head_dim], finite.
kvarn_status EncodeExactTile(const kvarn_format& format, const uint16_t* tile, int n_rows,
                             const int32_t* position, const int8_t* balance, uint8_t* record,
                             kvarn_counts* counts);
kvarn_status DecodeRecord(const kvarn_format& format, const uint8_t* record, float* rows);
kvarn_status ReorderRecord(const kvarn_format& from, const uint8_t* record, const kvarn_format& to,
                           uint8_t* out);

// Replaces a row that holds a NaN or Inf by zeros and clamps the rest to the fp16 range, with
// counting. `in` and `out` may be the same.
void SanitiseRow(const float* in, int head_dim, float* out, kvarn_counts* counts);

}  // namespace kvarn
#endif  // KVARN_CODEC_RECORD_H_
