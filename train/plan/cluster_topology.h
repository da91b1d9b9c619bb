// Where the ranks of a run would sit on a Cluster: node by node, GPU by GPU, as launchers number
// them, each then at its place in the mesh (dist/topology_placement.h).
#pragma once

#include "dist/mesh.h"
#include "dist/topology.h"
#include "train/plan/cluster.h"

namespace lockstep {

// Throws ConfigError where the cluster has fewer ranks than the mesh, and where it has no place for
// the tensor axis inside its NVLink domains.
Topology topology_on(const Cluster& cluster, const Mesh& mesh);

}  // namespace lockstep
