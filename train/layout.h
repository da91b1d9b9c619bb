// How the ranks of a run share it: what the keys of [layout] make of as many ranks as were started.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "dist/topology/mesh.h"
#include "train/config.h"

namespace lockstep {

// Throws ConfigError where the axes are not for this many ranks. layout.sharding = "none" makes the
// ranks of layout.shard further copies of the model.
Mesh mesh_of(const Config::Layout& layout, int ranks);

inline constexpr std::array<std::string_view, 4> kShardingNames{"none", "optimizer", "gradients",
                                                                "full"};
inline std::string_view name(Sharding sharding) {
  return kShardingNames[static_cast<std::size_t>(sharding)];
}
std::string in_words(Recompute recompute);  // "recompute cheap", "no recompute"

// Of a rank, which sequences it reads: number `rank` of `ranks`. Tensor ranks read the same.
struct DataPlace {
  int rank = 0, ranks = 1;
};
DataPlace data_place(const Mesh& mesh, int rank);

}  // namespace lockstep
