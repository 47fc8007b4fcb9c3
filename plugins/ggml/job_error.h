// SPDX-License-Identifier: Apache-2.0
//
// The first failure among the callbacks of a graph; they run on many threads and return nothing.
#ifndef KVARN_PLUGINS_GGML_JOB_ERROR_H_
#define KVARN_PLUGINS_GGML_JOB_ERROR_H_

#include <atomic>

#include "kvarn/kvarn.h"

namespace kvarn::ggml_plugin {

class JobError {
 public:
  void Set(kvarn_status status) {
    kvarn_status none = KVARN_OK;
    if (status != KVARN_OK) first_.compare_exchange_strong(none, status);
  }
  kvarn_status Take() { return first_.exchange(KVARN_OK); }

 private:
  std::atomic<kvarn_status> first_{KVARN_OK};
};

}  // namespace kvarn::ggml_plugin

#endif  // KVARN_PLUGINS_GGML_JOB_ERROR_H_
