// SPDX-License-Identifier: Apache-2.0
//
// The rest of a write: whether it comes, and what it reads, given to a stream of its own, until
// another stream waits for it.
#ifndef KVARN_TESTS_HOST_FAKE_GPU_REST_H_
#define KVARN_TESTS_HOST_FAKE_GPU_REST_H_

namespace fake_gpu {

void RestIsAwaited(const void* stream);
void StreamEnds(const void* stream);

}  // namespace fake_gpu

#endif  // KVARN_TESTS_HOST_FAKE_GPU_REST_H_
