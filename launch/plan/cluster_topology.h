// Where the ranks of a run would sit on a Cluster: node by node, GPU by GPU, as launchers number
// them, each then at its place in the mesh (dist/topology/topology_placement.h).
#pragma once

#include "dist/topology/mesh.h"
#include "dist/topology/topology.h"
#include "dist/topology/topology_placement.h"
#include "launch/plan/cluster.h"

namespace lockstep {

// Of so many ranks, as launched. Throws ConfigError where the cluster has fewer.
Topology launched_on(const Cluster& cluster, int ranks);

// Each of them at its place. Throws ConfigError where there is none for the tensor axis inside the
// NVLink domains.
Topology placed_in(const Mesh& mesh, const Topology& launched,
                   TensorAcross across = TensorAcross::refused);

}  // namespace lockstep
