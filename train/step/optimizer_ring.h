// OptimizerRing: brings what AdamW keeps of each weight (fp32 master, m, v) from pinned host memory
// to the GPU for its update, chunk by chunk, and back. A ring there holds a few chunks; each
// direction of the link has a stream, and events order them with the compute stream, for chunk c:
//
//   copy in of c  ->  update of c  ->  copy out of c  ->  copy in of c + kRing, to the same memory
//
// So the updates take as long as the link needs for all state in one direction.
#pragma once

#include <array>
#include <vector>

#include "core/arena.h"
#include "core/function_ref.h"
#include "core/stream.h"

namespace lockstep {

// Of a range of n elements, [n] each.
struct AdamWState {
  Tensor master;  // fp32, or absent
  Tensor m, v;

  AdamWState rows(std::int64_t begin, std::int64_t count) const;
};

class OptimizerRing {
 public:
  static constexpr std::size_t kRing = 4;
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // of a chunk

  // `host`: of each chunk, in pinned memory that outlives this. The ring comes from `arena`.
  OptimizerRing(Arena& arena, const Stream& compute, std::vector<AdamWState> host);

  // Where the state of a chunk is while it is updated.
  AdamWState on_device(std::size_t chunk) const;

  // Calls update(chunk) for each, which enqueues on `compute`. What `compute` is given afterwards
  // finds the new state on the host.
  void update(Stream& compute, FunctionRef<void(std::size_t)> update);

 private:
  struct Slot {
    AdamWState state;
    Event is_free;  // what was in it is on the host
  };
  static void copy(Stream& stream, const AdamWState& to, const AdamWState& from);

  std::vector<AdamWState> host_;
  Stream to_device_, to_host_;  // destroyed behind the events
  std::array<Slot, kRing> ring_;
};

}  // namespace lockstep
