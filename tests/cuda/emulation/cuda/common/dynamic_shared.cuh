// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the header of this name: one CTA runs at a time.
#pragma once

namespace kvarn::cuda {

template <typename T>
T* DynamicShared() {
  static T memory;
  return &memory;
}

}  // namespace kvarn::cuda
