// Reduction sums gradients over ranks. One rank makes each sum, in fp32, in rank order: the result
// does not depend on a library's ring or tree. It has two levels (comms.h):
//
//   inside a domain   pieces travel by all-to-all, and are added
//   across domains    the sums of domains travel by all-to-all, and are added
//
// Reduce decides the types of both (SumPath). With Reduce::nccl the communicator's own
// reduce-scatter makes the sum instead.
//
// It runs in few large chunks through a ring of bounded size: each chunk costs some kernels that
// wait for free multiprocessors. With both levels, the ring has two slots, so a chunk moves inside
// the domains while the one before it moves across them.
#pragma once

#include "core/arena.h"
#include "dist/comms.h"

namespace lockstep {

// SumPath describes how a sum of d ranks travels: first over the `inside` ranks of each domain,
// then over `domains`. A level of one rank is skipped.
struct SumPath {
  // compute: fp32 or bf16, the compute type      all: every rank gets the sum, else one
  SumPath(Reduce reduce, DType compute, std::int64_t inside, std::int64_t domains, bool all);
  bool has_both() const { return inside > 1 && domains > 1; }

  std::int64_t inside, domains;  // if by_library: the number of all ranks, and 1
  DType pieces;                  // type of what ranks send first
  DType across;                  // type of what crosses domains
  DType gathered = DType::fp32;  // type of sums that every rank gets
  bool by_library = false;       // by Communicator::reduce_scatter
};

class ReduceRing {
 public:
  // Each rank's part of a reduced tensor is a multiple of this number of elements.
  static constexpr std::int64_t kMultiple = 128;
  static constexpr std::int64_t kSmallBytes = std::int64_t{64} << 20,
                                kMostBytes = std::int64_t{512} << 20;

  ReduceRing() = default;
  // Allocates memory for sums over each of `levels`, of up to `elements` per rank. A sum runs at
  // once if that takes at most `small_bytes`, else in about four chunks, or in more if the ring
  // would exceed kMostBytes. The size does not depend on the domains.
  //   compute: fp32 or bf16, the compute type
  ReduceRing(Arena& arena, Reduce reduce, DType compute,
             std::initializer_list<const Levels*> levels, std::int64_t elements,
             std::int64_t small_bytes = kSmallBytes);

  // Bytes of the ring for sums over `ranks` ranks.
  static std::int64_t memory_bytes(std::int64_t ranks, std::int64_t elements,
                                   std::int64_t small_bytes = kSmallBytes);
  // Least elements of a bucket that is summed over `ranks` replicas; the last one may be smaller.
  // It grows with the ranks, because the latency of a call does.
  static std::int64_t bucket_elements(std::int64_t ranks) { return ranks * (64 << 10); }
  // Number of the n elements per rank that are summed at once.
  static std::int64_t chunk(const SumPath& path, std::int64_t n, std::int64_t memory_bytes);
  // Number of the n elements per rank whose sums are gathered at once.
  static std::int64_t gathered_chunk(const SumPath& path, std::int64_t n,
                                     std::int64_t memory_bytes);

  // The streams of a sum. Its result is ready on `main`. If there are both levels, transfers across
  // domains run on `across`, which may be the same stream.
  struct Streams {
    Stream& main;
    Stream& across;
  };
  // sum [n] = this rank's n of the sum over ranks of in [d n], both fp32; with `add`, sum += it.
  // sum may be this rank's part of `in`, which is then overwritten.
  void reduce_scatter(Streams streams, const Levels& levels, Tensor sum, ConstTensor in,
                      bool add = false) const;
  // inout [d n] fp32 = its sum over ranks, with the same bits on each rank. Each rank makes the sum
  // of its part, and gathers all parts.
  void all_reduce(Streams streams, const Levels& levels, Tensor inout) const;

 private:
  SumPath path_of(const Levels& levels, bool all) const;
  void sum_part(Streams streams, const Levels& levels, const SumPath& path, Tensor sum,
                ConstTensor in, bool add) const;

  Reduce reduce_ = Reduce::fp32;
  DType compute_ = DType::fp32;
  Tensor memory_;
};

}  // namespace lockstep
