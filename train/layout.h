// Layout: the mesh that the keys of [layout] make of the started ranks.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "dist/topology/holders.h"
#include "train/config.h"

namespace lockstep {

// Makes the mesh. Throws ConfigError if the product of the axes is not `ranks`. With
// layout.sharding = "none" the ranks of layout.shard are data-parallel replicas too.
Mesh mesh_of(const Config::Layout& layout, int ranks);

inline constexpr std::array<std::string_view, 5> kShardingNames{"none", "optimizer", "gradients",
                                                                "weights", "full"};
inline std::string_view name(Sharding sharding) {
  return kShardingNames[static_cast<std::size_t>(sharding)];
}
inline constexpr std::array<std::string_view, 3> kReduceNames{"fp32", "bf16", "nccl"};
inline std::string_view name(Reduce reduce) {
  return kReduceNames[static_cast<std::size_t>(reduce)];
}
std::string in_words(Recompute recompute);  // "recompute cheap", "no recompute"

// Number of ranks that read different data; tensor ranks read the same data.
inline std::int64_t data_ranks(const Config::Layout& layout) {
  return layout.replicate * layout.shard;
}

}  // namespace lockstep
