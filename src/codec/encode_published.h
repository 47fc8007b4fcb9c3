// SPDX-License-Identifier: Apache-2.0
//
// The encoder of the published method (arXiv 2606.03458), for import, export and comparison.
#ifndef KVARN_CODEC_ENCODE_PUBLISHED_H_
#define KVARN_CODEC_ENCODE_PUBLISHED_H_

#include "cpu/kernels.h"

namespace kvarn {

// K: K^[d,g] = (c a[d] + z[d]) t[g].  V: V^[g,d] = (c a[g] + z[g]) C[d].
// Throws std::bad_alloc.
void EncodePublished(bool key, EncodeTile* tile);

}  // namespace kvarn
#endif  // KVARN_CODEC_ENCODE_PUBLISHED_H_
