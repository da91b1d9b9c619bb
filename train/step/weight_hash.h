// WeightHash: a number of all weights of a run, the same whatever the layout, and whether ranks
// that hold the same weights hold the same bits: memory or processors that err without a word show.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/mirror.h"
#include "dist/param_store.h"

namespace lockstep {

class WeightHash {
 public:
  // `params`, which is allocated, outlives this; host memory of a GPU comes from `pinned`.
  WeightHash(ParamStore& params, Arena& arena, Arena& pinned);

  // Of the weights (the fp32 masters where there are any) as they are behind what the stream was
  // given so far. Every rank at once; of a GPU one that was not read may be on its way.
  void enqueue(Stream& stream);

  struct Result {
    std::uint64_t hash = 0;
    // Ranks that hold the same weights, where they differ: in groups of equal bits, the largest
    // first. Empty: all is well.
    std::vector<std::vector<int>> unequal;
  };
  Result read();  // of the first that was not read; waits for the device; the same on all ranks

 private:
  // Of the elements that tensor ranks divide, and of those that each of them holds; uint64 each.
  static constexpr int kParts = 2;
  using Parts = std::array<std::uint64_t, kParts>;
  struct Slot {
    Mirror all;  // of all ranks
    Event done;
  };
  Result result_of(const std::vector<Parts>& of_ranks) const;

  ParamStore& params_;
  Tensor mine_;
  std::array<Slot, 2> slots_;  // by turns
  std::size_t enqueued_ = 0, read_ = 0;
};

// "00c0ffee..." of 16 digits.
std::string hex_of(std::uint64_t hash);

}  // namespace lockstep
