// Simulated hosts and a single rank for tests of preflight.
#pragma once

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/error.h"
#include "dist/comms.h"
#include "launch/preflight/preflight_rank.h"
#include "tests/launch/plan/cluster_rig.h"
#include "tests/support/thread_world.h"

namespace lockstep::testing {

// Simulated hosts n1, n2, ... with the given numbers of ranks. Ranks are in order of hosts, or
// round robin over hosts if `dealt`.
inline Topology pretend_hosts(const std::vector<int>& ranks, bool dealt = false) {
  std::vector<std::pair<int, std::size_t>> order;  // of ranks: number on the host, host
  for (std::size_t h = 0; h < ranks.size(); ++h)
    for (int i = 0; i < ranks[h]; ++i)
      order.emplace_back(i, h);
  if (dealt) std::ranges::sort(order);
  std::vector<RankPlace> places;
  for (const auto& [number, host] : order) {
    RankPlace place;
    place.host = place.machine = str("n", host + 1);
    places.push_back(place);
  }
  return topology_of(std::move(places));
}

// LoneRank is the first of `ranks` on one host. The other ranks do not run.
struct LoneRank {
  explicit LoneRank(int ranks = 1) : topology(pretend_hosts({ranks})) {}

  Stream compute{Device{}, "compute"};
  LoneWorld world;
  Topology topology;
  Comms comms = make_comms();
  PreflightRank rank{world,   topology, comms, compute,
                     nullptr, {},       0,     LinkTimes::memory(world, Device{})};
};

// Calls act(rank) on each rank of `topology`, each in its own thread. Returns their findings.
inline std::vector<std::vector<Finding>> on_ranks(const Topology& topology, const Mesh& mesh,
                                                  const std::function<void(PreflightRank&)>& act,
                                                  const Hardware* known = nullptr) {
  std::vector<std::vector<Finding>> found(topology.places.size());
  run_thread_ranks(mesh.world(), [&](World& world) {
    Stream compute(Device{}, "compute");
    Comms comms = make_comms(world, mesh, &topology);
    PreflightRank rank{world, topology, comms, compute,
                       known, {},       0,     LinkTimes::memory(world, Device{})};
    act(rank);
    found[static_cast<std::size_t>(world.rank())] = rank.findings;
  });
  return found;
}

inline const Finding* find(const std::vector<Finding>& findings, const std::string& check) {
  for (const Finding& one : findings)
    if (one.check == check) return &one;
  return nullptr;
}

}  // namespace lockstep::testing
