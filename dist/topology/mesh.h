// Mesh: who is where. Pure arithmetic on ranks; talks to nobody. "axis" is always a mesh axis,
// "dim" always a tensor dimension. A further axis (pipeline, context, expert) is one more
// enumerator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// Outermost first; tensor ranks are neighbours.
//   replicate  copies of the sharded model          shard  ranks that share one copy (FSDP)
//   tensor     ranks that share each matrix, and the sequence between matrices
enum class Axis : std::uint8_t { replicate, shard, tensor };
inline constexpr int kAxes = 3;

const char* name(Axis axis);

// What ranks of the shard axis share: ZeRO 0 to 3. `none` makes them further copies: a mesh has a
// replicate axis then, in place of a shard axis.
enum class Sharding : std::uint8_t { none, optimizer, gradients, full };

struct Mesh {
  int replicate = 1, shard = 1, tensor = 1;  // sizes

  int world() const { return replicate * shard * tensor; }  // ranks in all
  int size(Axis axis) const {
    return std::array{replicate, shard, tensor}[static_cast<std::size_t>(axis)];
  }
  int coordinate(Axis axis, int rank) const;
  std::vector<int> peers(Axis axis, int rank) const;  // the ranks that differ only along axis
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  int stride(Axis axis) const;  // between neighbours along axis
};

}  // namespace lockstep
