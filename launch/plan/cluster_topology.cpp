#include "launch/plan/cluster_topology.h"

#include <algorithm>

#include "core/integer.h"

namespace lockstep {

Topology launched_on(const Cluster& cluster, int ranks) {
  if (ranks > cluster.ranks())
    throw ConfigError(str("the layout needs ", ranks, " ranks, but ", cluster.name, " has ",
                          cluster.ranks(), " (", cluster.nodes,
                          cluster.nodes == 1 ? " node" : " nodes", " x ", cluster.ranks_per_node,
                          "); use ", divide_up(ranks, cluster.ranks_per_node), " nodes"));
  const bool on_gpus = cluster.device == Device::Kind::cuda;
  const int domain_ranks =
      on_gpus ? std::max(cluster.hardware.domain_ranks, 1) : cluster.ranks_per_node;
  // A domain no larger than a host ends at the host.
  const int ends_at = domain_ranks <= cluster.ranks_per_node ? cluster.ranks_per_node : ranks;
  Topology topology;
  for (int rank = 0; rank < ranks; ++rank) {
    RankPlace place;
    place.host = str("node ", rank / cluster.ranks_per_node);
    place.machine = place.host;
    if (on_gpus) {
      place.gpu = rank % cluster.ranks_per_node;
      place.gpu_name = cluster.hardware.name;
      place.rail = place.gpu;
    }
    if (rank % ends_at % domain_ranks == 0) {
      const auto number = topology.domains.size();
      topology.domains.push_back(
          {.name = on_gpus ? str("NVLink domain ", number) : place.host, .ranks = {}});
    }
    topology.places.push_back(std::move(place));
    topology.domains.back().ranks.push_back(rank);
    topology.domain_of.push_back(static_cast<int>(topology.domains.size()) - 1);
  }
  return topology;
}

Topology placed_in(const Mesh& mesh, const Topology& launched, TensorAcross across) {
  return renumbered(launched, placement(mesh, launched, across));
}

}  // namespace lockstep
