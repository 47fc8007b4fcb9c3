// SPDX-License-Identifier: Apache-2.0
//
// One attention call with everything it needs, for the library and for the oracle.
#ifndef KVARN_TESTS_SUPPORT_ATTENTION_SETUP_H_
#define KVARN_TESTS_SUPPORT_ATTENTION_SETUP_H_

#include <string>
#include <vector>

#include "kvarn/kvarn.h"
#include "reference/reference_attention.h"
#include "support/plane_block.h"
#include "support/tiles.h"

namespace kvarn_test {

enum class MaskKind {
  kNone,
  kCausal,
  kWindow,
  kHoles,     // rows excluded at random, another set for each query row
  kSomeRows,  // as kHoles, and some query rows see nothing
  kDistance,  // minus the distance to the last row, for ALiBi
};

struct AttentionCase {
  int key_dim = 64;
  int value_dim = 64;
  int n_heads = 1;
  int n_kv_heads = 1;
  int n_streams = 1;
  int n_tokens = 1;
  int n_rows = 1;
  int key_bits = 4;
  int value_bits = 2;
  int group = 128;
  bool balanced = true;
  int key_tail = 0;
  int value_tail = 0;
  int sink_tiles = 0;
  TileKind keys = TileKind::kGaussian;
  TileKind values = TileKind::kGaussian;
  MaskKind mask = MaskKind::kNone;
  bool mask_per_head = false;
  bool mask_per_stream = false;
  double max_bias = 0.0;
  double softcap = 0.0;
  bool sinks = false;
  bool head_major = false;     // query and output as [S][H][T][D] instead of [S][T][H][D]
  bool sparse = false;         // a fifth of the rows is never written, and masked
  double query_outlier = 0.0;  // added to one channel of each query
  int poison = 0;              // byte that slots and records hold before the first write
  uint64_t seed = 1;
};

std::string Describe(const AttentionCase& c);

class AttentionSetup {
 public:
  explicit AttentionSetup(const AttentionCase& c);

  // Output of the library, [S][T][H][Dv], with a thread for each share.
  std::vector<float> Run(int n_threads) const;

  const kvarn_reference::AttentionProblem& Problem() const { return problem_; }
  const kvarn_plane* KeyPlane() const { return key_plane_.get(); }
  const kvarn_plane* ValuePlane() const { return value_plane_.get(); }
  const uint8_t* Keys(int pair) const;
  const uint8_t* Values(int pair) const;
  // Call whose output goes to `out`, which has room for n_out() floats.
  kvarn_attention Call(float* out) const;
  size_t OutSize() const;

 private:
  void FillPlanes();
  void FillQuery();
  void FillMask();

  AttentionCase case_;
  Random random_;
  PlanePtr key_plane_;
  PlanePtr value_plane_;
  Block keys_;
  Block values_;
  kvarn_reference::AttentionProblem problem_;
  std::vector<bool> missing_;                              // rows never written
  std::vector<float> query_;                               // as the library gets it, with gaps
  std::vector<uint16_t> mask_;                             // likewise
  size_t query_head_stride_ = 0, query_token_stride_ = 0;  // in floats
  size_t out_head_stride_ = 0, out_token_stride_ = 0;
  size_t mask_row_ = 0;  // halves of one row of the mask
};

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_ATTENTION_SETUP_H_
