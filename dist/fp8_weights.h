// Fp8Weights holds the fp8 copies of a store's matrices, and the scales they share. A copy is made
// from the whole matrix, as this tensor rank has it. With several ranks along the shard axis, it is
// made after each all-gather of its FSDP unit. Units share the memory of copies as they share their
// weight buffers.
#pragma once

#include <span>
#include <vector>

#include "core/arena.h"
#include "dist/param_layout.h"
#include "kernels/quantize.h"

namespace lockstep {

// Whether the matmuls of the layers run in fp8, and with which scales.
enum class Fp8Matmuls : std::uint8_t {
  off,
  tensor,  // one scale per tensor
  block,   // one scale per 128 x 128 block of weights, per 1 x 128 of everything else
};

// Scaling of the weights.
constexpr Scaling weight_scaling(Fp8Matmuls fp8) {
  return fp8 == Fp8Matmuls::tensor ? Scaling::tensor : Scaling::blocks;
}

class Fp8Weights {
 public:
  struct Group {  // a stacked group: one matrix
    ParamId first;
    Tensor absmax;  // [1] of absmax(), for one scale per tensor
    Fp8Matrix weight, transposed;
  };

  // `layout` must outlive this object.
  Fp8Weights(const ParamLayout& layout, Fp8Matmuls fp8) : layout_(layout), fp8_(fp8) {}

  // Allocates the copies and absmax. Throws Error if a matrix has a size on this rank that the fp8
  // matmuls do not support. With blocks and several tensor ranks, this includes each part of a
  // stacked matrix.
  //   buffers: for each unit, the index of its weight buffer
  void allocate(Arena& arena, std::span<const std::size_t> buffers);

  // absmax() is [G] fp32: the largest magnitude of each group over all ranks. absmax(id) is [1],
  // the value of the parameter's group. Both are absent unless there is one scale per tensor.
  Tensor absmax() const { return absmax_; }
  Tensor absmax(ParamId id) const;
  // Sets a unit's values to the largest magnitudes of its groups in this rank's shard.
  void find_absmax(Stream& stream, int unit, ConstTensor shard) const;

  // Makes the fp8 copies of a unit from its whole bf16 weights.
  void quantize(Stream& stream, int unit, ConstTensor weights) const;
  const Group* find(ParamId first) const;  // group of a unit that has its copies; null without fp8

 private:
  std::vector<ParamId> quantized_groups(int unit) const;
  std::int64_t place(int unit, Tensor memory);
  Shape checked_shape(ParamId first) const;
  std::span<const Group> groups(int unit) const;

  const ParamLayout& layout_;
  Fp8Matmuls fp8_;
  std::vector<std::vector<Group>> units_;
  Tensor absmax_;
};

}  // namespace lockstep
