// The topology of a run on a Cluster. Ranks are numbered node by node and GPU by GPU, as launchers
// do, and then placed in the mesh (dist/topology/topology_placement.h).
#pragma once

#include "dist/topology/mesh.h"
#include "dist/topology/topology.h"
#include "dist/topology/topology_placement.h"
#include "launch/plan/cluster.h"

namespace lockstep {

// The domains of `ranks` ranks as launched. Throws ConfigError if the cluster has fewer.
DomainMap launched_on(const Cluster& cluster, int ranks);

// The domains with ranks renumbered for the mesh. Throws ConfigError if tensor-parallel groups do
// not fit in the NVLink domains.
DomainMap placed_in(const Mesh& mesh, const DomainMap& launched,
                    TensorAcross across = TensorAcross::refused);

}  // namespace lockstep
