// LayoutSearch finds fast layouts for the same steps of the same model on a Cluster. It varies the
// ranks along each axis, sharding, keep_gathered, micro-batch, recompute and offload. It proposes
// only layouts that `train` can run.
//
// Each layout is first estimated with a few layers of the model and extrapolated to all layers. The
// best layouts are then estimated with all layers by `estimate`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/plan/estimate.h"

namespace lockstep {

// Maximum number of ranks of a plan. Each layout places each rank; a search with this many ranks
// takes about 6 s.
inline constexpr std::int64_t kMostPlannedRanks = 131'072;

struct FoundLayout {
  Config config;
  Estimate estimate;
  std::string why;  // difference from the best layout: "tensor 2: +38 ms (...)"
};

struct MissedLayout {
  Config config;
  std::int64_t missing_bytes = 0, missing_host_bytes = 0;  // see Estimate
  double step_seconds = 0;                                 // if it fitted
  std::string why;  // "micro-batch 8: 3.1 GiB too much, for 12 ms less"
};

struct LayoutSearch {
  std::vector<FoundLayout> best;  // layouts that fit, fastest first
  // Layouts that are too large, those that miss the least memory first: layouts faster than the
  // best, or if none fits, the smallest ones.
  std::vector<MissedLayout> misses;
  std::int64_t priced = 0;  // number of estimated layouts
  // If none fits: the number of nodes on which some layout fits; 0: none up to tried_nodes.
  std::int64_t fitting_nodes = 0, tried_nodes = 0;
};

// Searches the layouts of config.layout.ranks ranks with this number of threads.
LayoutSearch search_layouts(const Config& config, const Cluster& cluster, int threads,
                            std::size_t most = 5);

// "replicate 2 x shard 8 x tensor 1, sharding full, micro-batch 4, no recompute".
std::string layout_in_words(const Config& config);

}  // namespace lockstep
