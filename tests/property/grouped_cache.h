// SPDX-License-Identifier: Apache-2.0
//
// The K and V planes of one layer as a host uses them: a call writes the rows of its tokens, then
// computes their attention.
#ifndef KVARN_TESTS_PROPERTY_GROUPED_CACHE_H_
#define KVARN_TESTS_PROPERTY_GROUPED_CACHE_H_

#include <string>
#include <vector>

#include "kvarn/kvarn.h"
#include "support/plane_block.h"
#include "support/random.h"

namespace kvarn_test {

struct GroupedShape {
  int key_bits = 4;
  int value_bits = 2;
  int group = 64;
  int key_dim = 32;
  int value_dim = 32;
  int n_streams = 1;
  int n_kv_heads = 1;
  int n_heads = 1;
  int n_rows = 448;
  int key_tail = 64;
  int value_tail = 64;
  int sink_tiles = 0;
};

std::string Describe(const GroupedShape& shape);

// One call; S = n_streams.
struct GroupedCall {
  int n_tokens = 0;           // T, of each stream
  std::vector<int64_t> rows;  // [S][T]
  std::vector<bool> visible;  // [S][T][n_rows]
};

struct TokenData {
  std::vector<float> keys;    // [S][T][n_kv_heads][Dk]
  std::vector<float> values;  // [S][T][n_kv_heads][Dv]
  std::vector<float> query;   // [S][T][n_heads][Dk]
};
TokenData RandomTokens(const GroupedShape& shape, int n_tokens, Random* random);

class GroupedCache {
 public:
  static constexpr int kNoBlock = -1;  // do not keep copies
  // `room` for copies of each plane in a call.
  explicit GroupedCache(const GroupedShape& shape, int room = 256);

  // Output [S][T][n_heads][Dv].
  std::vector<float> Run(const GroupedCall& call, const TokenData& data);
  // The same tokens in calls of one token a stream, without copies.
  std::vector<float> RunOneByOne(const GroupedCall& call, const TokenData& data);

  bool SameBytes(const GroupedCache& other) const;
  int copies_used() const { return copies_used_; }
  // Of all that was ever written: bounds of |scale q.k| and of |v|.
  double LargestScore() const { return largest_query_ * largest_key_ * Scale(); }
  double LargestValue() const { return largest_value_; }

 private:
  double Scale() const;
  size_t Token(int stream, int token, int n_tokens) const {
    return static_cast<size_t>(stream * n_tokens + token);
  }
  // Writes one token of the call to all planes of its stream.
  void Write(const GroupedCall& call, const TokenData& data, int stream, int token, bool keep);
  // Attention of tokens [first, first + n) of each stream.
  void Attend(const GroupedCall& call, const TokenData& data, int first, int n, bool kept,
              std::vector<float>* out);
  uint8_t* Plane(bool key, int stream, int head);
  uint8_t* Recent(bool key, int stream, int head);

  GroupedShape shape_;
  int room_;
  PlanePtr key_plane_;
  PlanePtr value_plane_;
  Block keys_;
  Block values_;
  Block key_recent_;
  Block value_recent_;
  int copies_used_ = 0;
  double largest_query_ = 0.0, largest_key_ = 0.0, largest_value_ = 0.0;
};

}  // namespace kvarn_test
#endif  // KVARN_TESTS_PROPERTY_GROUPED_CACHE_H_
