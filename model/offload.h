// Offload moves the activations that layers keep between forward and backward to pinned host
// memory. The device holds them in a ring, and a copy stream works beside the compute stream.
// Events order the two, for layer l:
//
//   forward of l       ->  copy out of l  ->  forward of l + 2, which writes to the same memory
//   backward of l + 2  ->  copy in of l   ->  backward of l
//
// So a copy out may take as long as one layer's forward, and a copy in as long as one layer's
// backward. The last layers are still in the ring when backward reads them: they are not copied.
#pragma once

#include <vector>

#include "core/mirror.h"

namespace lockstep {

class Offload {
 public:
  static constexpr std::size_t kRing = 2;  // layers l and l + 2 share memory

  // Destination for a GPU. Both members outlive the offload.
  struct To {
    Stream& copies;
    Arena& pinned;
  };

  Offload() = default;  // no offload: each layer has its own memory, nothing is copied or waits

  // kept[l] lists the tensors on the device that layer l keeps, for all layers except the last
  // kRing. The residual stream has a ring of kRing + 1, because a layer reads what the layer before
  // it wrote.
  Offload(const To& to, const std::vector<std::vector<Tensor>>& kept);

  // All calls are asynchronous. They enclose each layer, on the stream that computes it.
  void before_forward(Stream& compute, std::size_t layer);
  void after_forward(Stream& compute, std::size_t layer);
  void before_backward(Stream& compute, std::size_t layer);
  void after_backward(Stream& compute, std::size_t layer);

 private:
  struct Layer {
    std::vector<Mirror> kept;
    Event copied;  // last copy, out or in
  };
  void wait_for(Stream& compute, std::size_t layer);

  Stream* copies_ = nullptr;
  std::vector<Layer> layers_;
};

}  // namespace lockstep
