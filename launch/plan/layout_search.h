// LayoutSearch: how the same steps of the same model could be laid over a Cluster: ranks along each
// axis, what they share and keep gathered, micro-batch, recompute, offload. It proposes what
// `train` runs.
//
// A layout is priced first with a few of the model's layers, to which as many more are added as the
// last ones took; the best of them are then estimated in full, as `estimate` does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/plan/estimate.h"

namespace lockstep {

// Of a plan: each layout places each rank, which takes a search of so many some 6 s.
inline constexpr std::int64_t kMostPlannedRanks = 131'072;

struct FoundLayout {
  Config config;
  Estimate estimate;
  std::string why;  // what it takes longer than the best for: "tensor 2: +38 ms exposed"
};

struct MissedLayout {
  Config config;
  std::int64_t missing_bytes = 0, missing_host_bytes = 0;  // as of an Estimate
  double step_seconds = 0;                                 // that it would take
  std::string why;  // "micro-batch 8: 3.1 GiB too much, for 12 ms less"
};

struct LayoutSearch {
  std::vector<FoundLayout> best;  // that fit, the fastest first
  // Too large, the nearest first: faster than the best, or, where none fits, those that need least.
  std::vector<MissedLayout> misses;
  std::int64_t priced = 0;  // layouts
  // Where none fits: some layout does on so many nodes; 0: on none up to tried_nodes.
  std::int64_t fitting_nodes = 0, tried_nodes = 0;
};

// Of config.layout.ranks ranks. threads: that search.
LayoutSearch search_layouts(const Config& config, const Cluster& cluster, int threads,
                            std::size_t most = 5);

// "replicate 2 x shard 8 x tensor 1, sharding full, micro-batch 4, no recompute".
std::string layout_in_words(const Config& config);

}  // namespace lockstep
