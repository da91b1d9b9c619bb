// Placement of ranks in the mesh, and the split of an axis into NVLink domains. The functions are
// pure: every rank computes the same result.
#pragma once

#include <span>
#include <vector>

#include "dist/topology/mesh.h"
#include "dist/topology/topology.h"

namespace lockstep {

// Whether a tensor axis may span several NVLink domains (--allow-tensor-across-nodes).
enum class TensorAcross : unsigned char { refused, allowed };

// Returns order[place]: the launched rank that becomes rank `place` of the mesh.
//   - The ranks of a tensor axis are in one domain.
//   - A shard axis has the same number of ranks in each domain that it touches, as many as
//     possible: gcd(u, shard) in domains of u tensor groups each. They have the same places in each
//     domain, so traffic between domains stays on one rail. Domains of other sizes hold whole shard
//     axes first; their remaining ranks are joined.
//   - Inside a domain the ranks keep the launched order, host by host. If that mixes rails, they
//     are sorted by rail and GPU.
// The usual order of launchers (host by host, GPU by GPU) is kept. Throws ConfigError if the mesh
// is for another number of ranks, or if tensor groups do not fill a domain. The error names the
// domains and the sizes that fit.
std::vector<int> placement(const Mesh& mesh, const Topology& topology,
                           TensorAcross across = TensorAcross::refused);
// The same if the ranks of each domain take places in the launched order.
std::vector<int> placement_as_launched(const Mesh& mesh, const DomainMap& map, TensorAcross across);

// Ranks of a group (the peers along an axis, or along all data axes) as a table [domain][place]
// with rows of equal length. Rows and their ranks follow the order of the group. If domains hold
// unequal numbers of the group's ranks, there is one level: each row has one rank. The rows
// together may have another order than the group: piece i of a group's buffer belongs to the rank
// group[i].
struct TwoLevels {
  std::vector<std::vector<int>> domains;

  std::vector<int> inside(int rank) const;  // row of the rank: peers in its domain, with itself
  std::vector<int> across(int rank) const;  // column of the rank: its place in each domain
};

// `map` and `group` have the numbers of the mesh, those after renumbered(topology, order).
TwoLevels two_levels(const DomainMap& map, std::span<const int> group);

}  // namespace lockstep
