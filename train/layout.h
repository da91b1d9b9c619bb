// How the ranks of a run share it: what the keys of [layout] make of as many ranks as were started.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "dist/topology/holders.h"
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

// Ranks that read data: tensor ranks read the same.
inline std::int64_t data_ranks(const Config::Layout& layout) {
  return layout.ranks / layout.tensor;
}

}  // namespace lockstep
