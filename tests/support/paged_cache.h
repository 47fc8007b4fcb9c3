// SPDX-License-Identifier: Apache-2.0
//
// A small host of a paged cache: block tables, rings, steps of several sequences, tokens taken
// back, blocks shared between sequences; and what attention should have given, in double.
#ifndef KVARN_TESTS_SUPPORT_PAGED_CACHE_H_
#define KVARN_TESTS_SUPPORT_PAGED_CACHE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kvarn/kvarn_paged.h"
#include "support/plane_block.h"
#include "support/random.h"

namespace kvarn_test {

struct PagedCase {
  int key_dim = 64;
  int value_dim = 64;
  int n_heads = 4;
  int n_kv_heads = 2;
  int key_bits = 4;
  int value_bits = 2;
  int group = 64;
  kvarn_dtype dtype = KVARN_FP32;
  int draft = 0;       // tokens that may be taken back
  int page_rows = 13;  // ring rows a page holds
  float softcap = 0.0F;
  int poison = -1;  // position whose K and V rows have NaN and Inf in them, which count as zeros
  uint64_t seed = 1;
};

std::string Describe(const PagedCase& c);

class PagedCache {
 public:
  // Every sequence has the same maximal length; contents of position x follow from `content`,
  // which sequences that share blocks share.
  PagedCache(const PagedCase& c, int n_sequences, int max_length, int n_threads);

  struct Tokens {
    int sequence;
    int count;
  };
  // Runs one step; the rows of position x of a sequence are those of its content, unless `draft`,
  // which makes other ones. Compares every output row with the oracle.
  void Step(const std::vector<Tokens>& tokens, bool draft = false);
  // The last `count` tokens of a sequence never were.
  void TakeBack(int sequence, int count);
  // `sequence`, which must be empty, begins with the first `tiles` blocks of `other`. They may be
  // completed in the same step.
  void Share(int sequence, int other, int tiles);
  // Gives a sequence that shares no blocks new ones, as after a preemption.
  void Restart(int sequence);

  int Length(int sequence) const { return sequences_[static_cast<size_t>(sequence)].length; }
  // Key and value records of a tile, all heads.
  std::vector<uint8_t> Records(int sequence, int tile) const;
  kvarn_format KeyFormat() const { return step_.key_format; }
  // The balance that tile 0 must have: from the reference, its rows and all its queries.
  std::vector<int8_t> WantedBalance(int sequence, int head) const;
  std::vector<int8_t> Balance(int sequence, int tile, int head) const;
  double WorstShare() const { return worst_share_; }  // largest error / bound so far
  const std::vector<uint8_t>& Output() const { return out_; }
  // The step that ran last, whose arrays still exist.
  const kvarn_paged_step& LastStep() const { return step_; }

 private:
  struct Sequence {
    uint64_t content = 0;
    int length = 0;
    std::vector<int32_t> blocks;  // of each tile
    std::vector<int32_t> pages;   // of its ring
    std::vector<bool> draft;      // of each position
  };
  enum class Rows { kQuery, kKey, kValue };

  size_t Element() const { return case_.dtype == KVARN_FP32 ? 4 : 2; }
  float Rounded(float x) const;
  void Append(std::vector<uint8_t>* bytes, float x) const;
  double At(const std::vector<uint8_t>& bytes, size_t index) const;
  // Values of one row, representable in the dtype, as they count.
  std::vector<float> Row(const Sequence& s, Rows what, int position, int head) const;
  std::vector<double> Expected(int sequence, int computed, int position, int head, double* bound);
  void RunStep();
  void Compare(const std::vector<Tokens>& tokens);

  PagedCase case_;
  int n_threads_;
  int max_tiles_;
  Random random_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> free_blocks_;
  std::vector<Block> ring_pages_;
  std::vector<void*> ring_bases_;
  Block records_;
  kvarn_paged_step step_ = {};
  std::vector<int32_t> query_start_, lengths_, block_table_, ring_table_;
  std::vector<uint8_t> query_, keys_, values_, out_;
  std::map<const uint8_t*, std::vector<double>> decoded_;  // records read in this step
  double worst_share_ = 0.0;
};

}  // namespace kvarn_test
#endif  // KVARN_TESTS_SUPPORT_PAGED_CACHE_H_
