// WeightHash computes a hash of all weights of a run, which is the same in every layout. It also
// compares replicated weights between ranks, to find silent faults of memory and processors.
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
  // `params` must be allocated and outlive this. On a GPU, host memory comes from `pinned`.
  WeightHash(ParamStore& params, Arena& arena, Arena& pinned);

  // Enqueues the hash of the weights (the fp32 master weights if there are any) after the stream's
  // earlier work. Collective. One earlier hash may still be unread.
  void enqueue(Stream& stream);

  struct Result {
    std::uint64_t hash = 0;
    // If replicated weights differ: their ranks in groups of equal bits, the largest group first.
    // Else empty.
    std::vector<std::vector<int>> unequal;
  };
  Result read();  // the oldest unread; waits for the device; the same on all ranks

 private:
  // One uint64 of the elements that tensor ranks divide, and one of those that each of them holds.
  static constexpr int kParts = 2;
  using Parts = std::array<std::uint64_t, kParts>;
  struct Slot {
    Mirror all;  // parts of all ranks
    Event done;
  };
  Result result_of(const std::vector<Parts>& of_ranks) const;

  ParamStore& params_;
  Tensor mine_;
  std::array<Slot, 2> slots_;  // used alternately
  std::size_t enqueued_ = 0, read_ = 0;
};

// 16 hexadecimal digits: "00c0ffee...".
std::string hex_of(std::uint64_t hash);

}  // namespace lockstep
