// Fp8Weights: the copies in fp8 of a store's matrices, and the scales they share. A copy is made
// from the whole matrix, as this tensor rank has it: with several ranks along the shard axis behind
// each gather of its unit, in memory that units share as they share their buffers of weights.
#pragma once

#include <span>
#include <vector>

#include "core/arena.h"
#include "dist/param_layout.h"
#include "kernels/quantize.h"

namespace lockstep {

// Whether the products of the layers' matrices are of fp8, and with which scales.
enum class Fp8Products : std::uint8_t {
  off,
  tensor,  // one scale a tensor
  block,   // one for 128 x 128 of weights, for 1 x 128 of all else
};

// Of the weights.
constexpr Scaling weight_scaling(Fp8Products fp8) {
  return fp8 == Fp8Products::tensor ? Scaling::tensor : Scaling::blocks;
}

class Fp8Weights {
 public:
  struct Group {  // a stacked group, one matrix
    ParamId first;
    Tensor absmax;  // [1] of absmax(), for one scale a tensor
    Fp8Matrix weight, transposed;
  };

  // `layout` outlives it.
  Fp8Weights(const ParamLayout& layout, Fp8Products fp8) : layout_(layout), fp8_(fp8) {}

  // Takes memory for the copies, and for absmax. Throws Error where a matrix, or with blocks and
  // several tensor ranks a part of a stacked one, has a size on this rank that has no products.
  //   buffers: of each unit which buffer its weights are in
  void allocate(Arena& arena, std::span<const std::size_t> buffers);

  // Of all groups [G] fp32: the largest magnitude on all ranks; of a parameter [1], its group's.
  // Absent where there is not one scale a tensor.
  Tensor absmax() const { return absmax_; }
  Tensor absmax(ParamId id) const;
  // Sets a unit's to the largest magnitudes of what this rank's shard has of its groups.
  void find_absmax(Stream& stream, int unit, ConstTensor shard) const;

  // The copies of a unit of the whole, bf16 weights.
  void quantize(Stream& stream, int unit, ConstTensor weights) const;
  const Group* find(ParamId first) const;  // of a unit that has its copies; null without fp8

 private:
  std::vector<ParamId> quantized_groups(int unit) const;
  std::int64_t place(int unit, Tensor memory);
  Shape checked_shape(ParamId first) const;
  std::span<const Group> groups(int unit) const;

  const ParamLayout& layout_;
  Fp8Products fp8_;
  std::vector<std::vector<Group>> units_;
  Tensor absmax_;
};

}  // namespace lockstep
