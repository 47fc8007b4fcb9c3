// SPDX-License-Identifier: Apache-2.0
//
// Codes of a tile as bytes, to and from the bit layouts of a record (docs/format.md section 3).
#ifndef KVARN_CODEC_PACK_H_
#define KVARN_CODEC_PACK_H_

#include <cstdint>

#include "kvarn/kvarn.h"

namespace kvarn {

// codes [group][head_dim], each < 2^bits; out: MakeRecordLayout(format).scale (K) or .other (V)
// bytes, all written.
void PackCodes(const kvarn_format& format, const uint8_t* codes, uint8_t* out);
void UnpackCodes(const kvarn_format& format, const uint8_t* packed, uint8_t* codes);

}  // namespace kvarn
#endif  // KVARN_CODEC_PACK_H_
