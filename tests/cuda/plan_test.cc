// SPDX-License-Identifier: Apache-2.0
//
// The planner of decode with a table of tiles, run thread by thread on a CPU: which tiles it lists,
// and that the shares of all CTAs cover each unit of work once.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "cuda/attention/launch.h"
#include "cuda/attention/shape.h"

namespace {

using namespace kvarn::cuda;

constexpr int kWarps = 8;

void Expect(bool ok, const char* what) {
  if (ok) return;
  std::printf("FAILED: %s\n", what);
  std::exit(1);
}

struct Listed {
  std::vector<int> tiles, places;
};

class PlanCase {
 public:
  explicit PlanCase(unsigned seed) : random_(seed) {
    kvarn_cuda_decode& call = p_.call;
    call.key_format.group = group_ = Draw(2) == 0 ? 64 : 128;
    call.n_sequences = 1 + Draw(5);
    call.n_tokens = std::vector<int>{1, 4, 17, 64}[static_cast<size_t>(Draw(4))];
    call.tile_table_stride = 1 + Draw(Draw(4) == 0 ? 2500 : 60);
    for (int i = 0; i < call.n_sequences; ++i) {
      lengths_.push_back(Draw(5) == 0 ? 0 : Draw(call.tile_table_stride * group_ + 1));
    }
    for (int i = 0; i < call.n_sequences * call.tile_table_stride; ++i) {
      const int draw = Draw(10);
      table_.push_back(draw < 5   ? KVARN_CUDA_TILE_RECORD
                       : draw < 6 ? KVARN_CUDA_TILE_EMPTY
                                  : Draw(1000) * group_);
      blocks_.push_back(Draw(5000));
    }
    call.lengths = lengths_.data();
    call.tile_table = table_.data();
    if (Draw(2) == 0) {
      call.block_table = blocks_.data();
      call.block_table_stride = call.tile_table_stride;
    }
    if (Draw(3) > 0) call.mask = &mask_;
    if (call.mask != nullptr && Draw(3) > 0) {
      call.mask_map_stride = call.tile_table_stride + Draw(3);
      const int rows = call.n_sequences * ((call.n_tokens + 15) / 16);
      for (int i = 0; i < rows * call.mask_map_stride; ++i) {
        map_.push_back(
            static_cast<uint8_t>(std::vector<int>{0, 0, 1, 3, 3}[static_cast<size_t>(Draw(5))]));
      }
      call.mask_map = map_.data();
    }
    SetWork();
  }

  void Run() {
    LaunchPlan(p_, nullptr);
    int n_units = 0;
    int n_plain = 0;
    for (int i = 0; i < p_.call.n_sequences; ++i) CheckList(i, &n_units, &n_plain);
    CheckShares();
    std::printf("%d sequences, up to %d tiles of %d, %d CTAs: %d units, %d plain tiles\n",
                p_.call.n_sequences, p_.call.tile_table_stride, group_, p_.n_ctas, n_units,
                n_plain);
  }

 private:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  void SetWork() {
    p_.head_shift = Draw(4);
    p_.n_groups = 1 + Draw(3);
    p_.n_segments = p_.call.n_sequences * p_.n_groups * kUnitKinds;
    p_.n_ctas = 1 + Draw(132);
    p_.n_warps = kWarps;
    p_.record_cost = 200;
    p_.exact_cost = 128;
    p_.segment_cost = 100;
    p_.blocks_stride = 2 * p_.call.tile_table_stride;
    const auto list = static_cast<size_t>(p_.call.n_sequences * p_.blocks_stride);
    const auto segments = static_cast<size_t>(p_.n_segments);
    sequences_.resize(static_cast<size_t>(p_.call.n_sequences));
    tiles_.resize(list);
    places_.resize(list);
    pieces_.resize(static_cast<size_t>(p_.n_ctas) + segments);
    shares_.resize(static_cast<size_t>(p_.n_ctas));
    segment_pieces_.resize(segments + 1);
    filled_.resize(segments + 1);
    prefix_.resize(segments + 1);
    p_.sequences = sequences_.data();
    p_.listed_tiles = tiles_.data();
    p_.listed_places = places_.data();
    p_.blocks = places_.data();
    p_.pieces = pieces_.data();
    p_.shares = shares_.data();
    p_.segment_pieces = segment_pieces_.data();
    p_.filled = filled_.data();
    p_.prefix = prefix_.data();
  }

  // What a tile should be listed as: by kind of unit, or nowhere.
  int KindOf(int sequence, int tile, bool* plain) const {
    const kvarn_cuda_decode& call = p_.call;
    bool seen = call.mask_map == nullptr;
    *plain = call.mask == nullptr || call.mask_map != nullptr;
    const int rows = (call.n_tokens + 15) / 16;
    for (int row = 0; row < rows && call.mask_map != nullptr; ++row) {
      const int bits =
          map_[static_cast<size_t>((sequence * rows + row) * call.mask_map_stride + tile)];
      seen = seen || (bits & KVARN_CUDA_MAP_SEEN) != 0;
      *plain = *plain && (bits & KVARN_CUDA_MAP_PLAIN) != 0;
    }
    if ((tile + 1) * group_ > lengths_[static_cast<size_t>(sequence)]) *plain = false;
    const int place = table_[static_cast<size_t>(sequence * call.tile_table_stride + tile)];
    if (!seen || place == KVARN_CUDA_TILE_EMPTY) return kUnitKinds;
    return place == KVARN_CUDA_TILE_RECORD ? kRecordUnits : kExactUnits;
  }

  void CheckList(int i, int* n_units, int* n_plain) const {
    const int length = lengths_[static_cast<size_t>(i)];
    int listed[kUnitKinds] = {};
    int exact_units = 0;
    for (int tile = 0; tile * group_ < length; ++tile) {
      bool plain = false;
      const int kind = KindOf(i, tile, &plain);
      if (kind == kUnitKinds) continue;
      const auto at = static_cast<size_t>(i * p_.blocks_stride + listed[kind]++ +
                                          (kind == kExactUnits ? p_.call.tile_table_stride : 0));
      const auto in_table = static_cast<size_t>(i * p_.call.tile_table_stride + tile);
      Expect(PositionOf(tiles_[at]) == tile * group_, "position of a tile");
      Expect(IsPlain(tiles_[at]) == plain, "whether a tile is plain");
      Expect(places_[at] == (kind == kExactUnits              ? table_[in_table]
                             : p_.call.block_table != nullptr ? blocks_[in_table]
                                                              : tile),
             "place of a tile");
      *n_plain += plain ? 1 : 0;
      if (kind == kExactUnits) {
        exact_units +=
            (std::min(group_, length - tile * group_) + kExactUnitRows - 1) / kExactUnitRows;
      }
    }
    const DecodeSequence& s = sequences_[static_cast<size_t>(i)];
    Expect(s.n_records == listed[kRecordUnits], "number of records");
    Expect(s.n_exact == exact_units, "number of exact units");
    *n_units += listed[kRecordUnits] + exact_units;
  }

  void CheckShares() const {
    std::vector<std::vector<int>> done(static_cast<size_t>(p_.n_segments));
    for (int segment = 0; segment < p_.n_segments; ++segment) {
      const SegmentIndex at = SegmentAt(p_, segment);
      const DecodeSequence& s = sequences_[static_cast<size_t>(at.sequence)];
      done[static_cast<size_t>(segment)].resize(static_cast<size_t>(UnitCount(s, at.kind)));
    }
    for (const DecodeShare& share : shares_) {
      for (int index = share.first_piece; index < share.end_piece; ++index) {
        const DecodePiece& piece = PieceOfShare(p_, share, index);
        const int group = piece.first_head >> p_.head_shift;
        const int segment = (piece.sequence * p_.n_groups + group) * kUnitKinds + piece.kind;
        Expect(segment_pieces_[static_cast<size_t>(segment)] <= index &&
                   index < segment_pieces_[static_cast<size_t>(segment) + 1],
               "pieces of a segment");
        Expect(piece.n_units > 0, "a piece has units");
        for (int u = piece.first_unit; u < piece.first_unit + piece.n_units; ++u) {
          done[static_cast<size_t>(segment)].at(static_cast<size_t>(u)) += 1;
        }
        if (index != share.first_piece || piece.kind != kRecordUnits) continue;
        for (int u = 0; u < std::min(piece.n_units, kMaxDecodeWarps); ++u) {
          const int at = piece.sequence * p_.blocks_stride + piece.first_unit + u;
          Expect(share.blocks[u] == places_[static_cast<size_t>(at)], "first blocks of a share");
        }
      }
    }
    for (const std::vector<int>& units : done) {
      for (const int times : units) Expect(times == 1, "each unit belongs to one CTA");
    }
  }

  std::mt19937 random_;
  DecodeParams p_ = {};
  int group_;
  uint16_t mask_ = 0;
  std::vector<int32_t> lengths_, table_, blocks_;
  std::vector<uint8_t> map_;
  std::vector<DecodeSequence> sequences_;
  std::vector<int32_t> tiles_, places_, segment_pieces_, filled_;
  std::vector<DecodePiece> pieces_;
  std::vector<DecodeShare> shares_;
  std::vector<int64_t> prefix_;
};

}  // namespace

int main() {
  for (unsigned seed = 1; seed <= 40; ++seed) PlanCase(seed).Run();
  std::printf("passed\n");
  return 0;
}
