// SPDX-License-Identifier: Apache-2.0
//
// Reconstruction of a record in double precision (docs/format.md section 3), dense rotation.
#ifndef KVARN_TESTS_REFERENCE_REFERENCE_DECODER_H_
#define KVARN_TESTS_REFERENCE_REFERENCE_DECODER_H_

#include <vector>

#include "reference_record.h"

namespace kvarn_reference {

// [group][head_dim] in the rotated frame.
std::vector<double> DecodeRotated(const Record& record);

// [group][head_dim], rotation and balance undone.
std::vector<double> Decode(const Record& record);

}  // namespace kvarn_reference
#endif  // KVARN_TESTS_REFERENCE_REFERENCE_DECODER_H_
