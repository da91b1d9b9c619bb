// OptimizerRing copies the AdamW state of each weight (fp32 master, m, v) from pinned host memory
// to the GPU for its update, chunk by chunk, and back. A ring of buffers on the GPU holds a few
// chunks. Each direction of the link has a stream. Events order them with the compute stream, for
// chunk c:
//
//   copy in of c  ->  update of c  ->  copy out of c  ->  copy in of c + kRing, to the same memory
//
// So the updates take as long as one transfer of all state in one direction.
#pragma once

#include <array>
#include <vector>

#include "core/arena.h"
#include "core/function_ref.h"
#include "core/stream.h"

namespace lockstep {

// The AdamW state of a range of n elements, [n] each.
struct AdamWState {
  Tensor master;  // fp32, or absent
  Tensor m, v;

  AdamWState rows(std::int64_t begin, std::int64_t count) const;
};

class OptimizerRing {
 public:
  static constexpr std::size_t kRing = 4;
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // elements of a chunk

  // `host`: state of each chunk, in pinned memory that must outlive this. `arena` holds the ring.
  OptimizerRing(Arena& arena, const Stream& compute, std::vector<AdamWState> host);

  // The GPU buffers of a chunk during its update.
  AdamWState on_device(std::size_t chunk) const;

  // Calls update(chunk) for each chunk, which enqueues on `compute`. Work enqueued on `compute`
  // later sees the new state on the host.
  void update(Stream& compute, FunctionRef<void(std::size_t)> update);

 private:
  struct Slot {
    AdamWState state;
    Event is_free;  // its state has been copied to the host
  };
  static void copy(Stream& stream, const AdamWState& to, const AdamWState& from);

  std::vector<AdamWState> host_;
  Stream to_device_, to_host_;  // destroyed after the events
  std::array<Slot, kRing> ring_;
};

}  // namespace lockstep
