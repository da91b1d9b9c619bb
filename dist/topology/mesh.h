// Mesh: coordinates of ranks along the parallel axes. It is pure arithmetic without communication.
// "axis" always means a mesh axis, "dim" always a tensor dimension. A new axis (pipeline, context,
// expert) is one more enumerator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// Axes, outermost first. Tensor ranks are neighbours.
//   replicate  data-parallel replicas of the sharded model
//   shard      ranks that shard one copy of the model (FSDP, ZeRO stages 1 to 3)
//   tensor     ranks that divide each matrix (tensor parallel), and the sequence between matrices
enum class Axis : std::uint8_t { replicate, shard, tensor };
inline constexpr int kAxes = 3;

const char* name(Axis axis);

// State that the ranks of the shard axis divide:
//
//   none       nothing: the mesh has a replicate axis in place of the shard axis (ZeRO stage 0)
//   optimizer  master weights and moments (ZeRO stage 1)
//   gradients  also gradients, reduced after each micro-batch (ZeRO stage 2)
//   weights    optimizer state and weights; gradients stay whole until the last micro-batch
//   full       all (ZeRO stage 3, FSDP)
enum class Sharding : std::uint8_t { none, optimizer, gradients, weights, full };
constexpr bool divides_weights(Sharding sharding) {
  return sharding == Sharding::weights || sharding == Sharding::full;
}
constexpr bool reduces_each_micro_batch(Sharding sharding) {
  return sharding == Sharding::gradients || sharding == Sharding::full;
}

// How gradients are summed over ranks (dist/reduction.h):
//
//   fp32  in rank order; sums of domains, and all that was not sent inside one, travel in fp32
//   bf16  in rank order; only sums of domains along the shard axis travel in fp32
//   nccl  by the communication library, in its own order; all travels in the compute type
enum class Reduce : std::uint8_t { fp32, bf16, nccl };

struct Mesh {
  int replicate = 1, shard = 1, tensor = 1;  // sizes

  int world() const { return replicate * shard * tensor; }  // number of ranks
  int size(Axis axis) const {
    return std::array{replicate, shard, tensor}[static_cast<std::size_t>(axis)];
  }
  int coordinate(Axis axis, int rank) const;
  std::vector<int> peers(Axis axis, int rank) const;  // ranks that differ only along axis
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  int stride(Axis axis) const;  // difference between neighbouring ranks along axis
};

}  // namespace lockstep
