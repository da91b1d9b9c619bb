// Reduction: sums of gradients over ranks. Every sum is made by one rank, in fp32, in the order of
// ranks: it depends on no ring or tree of a library. It has two levels (comms.h):
//
//   inside a domain   pieces travel in a type of choice, all to all, and are added
//   across domains    the sums of domains travel in fp32, and are added
//
// and goes chunk by chunk through a ring of bounded size.
#pragma once

#include "core/arena.h"
#include "dist/comms.h"

namespace lockstep {

class ReduceRing {
 public:
  // Each rank's part of what is reduced is a multiple of this, in elements.
  static constexpr std::int64_t kMultiple = 128;
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

  ReduceRing() = default;
  // Memory for sums over each of `levels`, of up to `elements` a rank: all at once where that takes
  // no more than `most_bytes`, else in chunks. As much whatever the domains are.
  //   wire: fp32 or bf16, in which pieces travel inside a domain
  ReduceRing(Arena& arena, DType wire, std::initializer_list<const Levels*> levels,
             std::int64_t elements, std::int64_t most_bytes = kMostBytes);

  // Bytes of the ring for sums over `ranks` ranks.
  static std::int64_t memory_bytes(std::int64_t ranks, std::int64_t elements,
                                   std::int64_t most_bytes = kMostBytes);
  // How many of n elements a rank are summed at once, over domains of `inside` ranks each.
  static std::int64_t chunk(DType wire, std::int64_t inside, std::int64_t domains, std::int64_t n,
                            std::int64_t memory_bytes);

  // sum [n] = this rank's n of the sum over ranks of in [d n], both fp32; or `add`: += it. sum may
  // be this rank's part of `in`, which is overwritten then.
  void reduce_scatter(Stream& stream, const Levels& levels, Tensor sum, ConstTensor in,
                      bool add = false) const;
  // inout [d n] fp32 = its sum over ranks: each makes the sum of its part, and gathers the others'.
  void all_reduce(Stream& stream, const Levels& levels, Tensor inout) const;

 private:
  DType wire_ = DType::fp32;
  Tensor memory_;
};

}  // namespace lockstep
