#include "launch/plan/cluster_topology.h"

#include <algorithm>

#include "core/integer.h"

namespace lockstep {

DomainMap launched_on(const Cluster& cluster, int ranks) {
  if (ranks > cluster.ranks())
    throw ConfigError(str("the layout needs ", ranks, " ranks, but ", cluster.name, " has ",
                          cluster.ranks(), " (", cluster.nodes,
                          cluster.nodes == 1 ? " node" : " nodes", " x ", cluster.ranks_per_node,
                          "); use ", divide_up(ranks, cluster.ranks_per_node), " nodes"));
  DomainMap map{.domains = {}, .domain_of = {}, .has_gpus = cluster.device == Device::Kind::cuda};
  const int domain_ranks =
      map.has_gpus ? std::max(cluster.hardware.domain_ranks, 1) : cluster.ranks_per_node;
  // A domain no larger than a host ends at the host.
  const int ends_at = domain_ranks <= cluster.ranks_per_node ? cluster.ranks_per_node : ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank % ends_at % domain_ranks == 0)
      map.domains.push_back(
          {.name = (map.has_gpus ? "NVLink domain " : "node ") + std::to_string(map.domains.size()),
           .ranks = {}});
    map.domains.back().ranks.push_back(rank);
    map.domain_of.push_back(static_cast<int>(map.domains.size()) - 1);
  }
  return map;
}

DomainMap placed_in(const Mesh& mesh, const DomainMap& launched, TensorAcross across) {
  return renumbered_domains(launched, placement_as_launched(mesh, launched, across));
}

}  // namespace lockstep
