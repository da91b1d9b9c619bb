// Offload: what layers keep between forward and backward, in pinned host memory meanwhile. The
// device holds a ring of it, and a stream of copies works beside the compute stream; events order
// the two, for layer l:
//
//   forward of l       ->  copy out of l  ->  forward of l + 2, which writes to the same memory
//   backward of l + 2  ->  copy in of l   ->  backward of l
//
// So a copy out has the time of one layer's forward, and a copy in that of one layer's backward.
// Backward finds the last layers in the ring: they are not copied.
#pragma once

#include <vector>

#include "core/mirror.h"

namespace lockstep {

class Offload {
 public:
  static constexpr std::size_t kRing = 2;  // layers l and l + 2 keep in the same memory

  // Where to, of a GPU. Both outlive the offload.
  struct To {
    Stream& copies;
    Arena& pinned;
  };

  Offload() = default;  // every layer's memory is its own: nothing is copied, none of this waits

  // kept[l]: what layer l keeps, on the device; of all layers but the last kRing. What a layer
  // reads, and the one before it wrote, has a ring of kRing + 1: the residual stream.
  Offload(const To& to, const std::vector<std::vector<Tensor>>& kept);

  // All asynchronous. Around each layer, on the stream that computes it.
  void before_forward(Stream& compute, std::size_t layer);
  void after_forward(Stream& compute, std::size_t layer);
  void before_backward(Stream& compute, std::size_t layer);
  void after_backward(Stream& compute, std::size_t layer);

 private:
  struct Layer {
    std::vector<Mirror> kept;
    Event copied;  // out or in, whichever was last
  };
  void wait_for(Stream& compute, std::size_t layer);

  Stream* copies_ = nullptr;
  std::vector<Layer> layers_;
};

}  // namespace lockstep
