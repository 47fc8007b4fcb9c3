// SPDX-License-Identifier: Apache-2.0
//
// The phases of a paged step that write: records, then ring rows (kvarn_paged.h).
#ifndef KVARN_PAGED_SEAL_H_
#define KVARN_PAGED_SEAL_H_

#include "kvarn/kvarn_paged.h"

namespace kvarn {

kvarn_status CheckPaged(const kvarn_paged_step& step);

kvarn_status SealPaged(const kvarn_paged_step& step, int thread, int n_threads,
                       kvarn_counts* counts);
void StorePaged(const kvarn_paged_step& step, int thread, int n_threads);

}  // namespace kvarn
#endif  // KVARN_PAGED_SEAL_H_
