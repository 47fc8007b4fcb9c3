// SPDX-License-Identifier: Apache-2.0
//
// What the rest of a write, given to a stream of its own, reads until another stream waits for it.
#ifndef KVARN_TESTS_HOST_FAKE_GPU_REST_H_
#define KVARN_TESTS_HOST_FAKE_GPU_REST_H_

namespace fake_gpu {

void RestIsAwaited(const void* stream);

}  // namespace fake_gpu

#endif  // KVARN_TESTS_HOST_FAKE_GPU_REST_H_
