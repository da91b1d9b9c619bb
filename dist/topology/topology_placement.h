// Which rank takes which place of the mesh, and how the ranks of an axis lie in NVLink domains.
// Pure functions: every rank computes the same.
#pragma once

#include <span>
#include <vector>

#include "dist/topology/mesh.h"
#include "dist/topology/topology.h"

namespace lockstep {

// Whether ranks of a tensor axis may lie in several NVLink domains (--allow-tensor-across-nodes).
enum class TensorAcross : unsigned char { refused, allowed };

// order[place]: the rank, as launched, that takes this place: that is rank `place` of the mesh from
// then on.
//   - Tensor ranks lie in one domain.
//   - The shard axis has equally many ranks in each domain that it touches, as many as can be: in
//     domains of u tensor groups each, gcd(u, shard); and in each at the same places, so that what
//     leaves a domain stays on one rail. Domains of other sizes hold whole shard axes first; what
//     is left of them is joined.
//   - Inside a domain ranks stay as launched, host by host, unless that mixes rails: then they lie
//     in the order of rails and GPUs.
// So a launcher's usual order (host by host, GPU by GPU) stays as it is. Throws ConfigError where
// the mesh is not for as many ranks, and where a domain cannot be filled with tensor groups, with
// each such domain and what would do.
std::vector<int> placement(const Mesh& mesh, const Topology& topology,
                           TensorAcross across = TensorAcross::refused);

// Ranks of a group (the peers along an axis, or along all data axes) as a table with a row a
// domain, each as long: [domain][place]. Rows and their ranks come in the order of the group. Where
// domains hold unequal numbers of the group's ranks there is one level only: each row has one rank.
// Rows one behind the other need not be the group in its order: piece i of a group's buffer belongs
// to the rank group[i], wherever the table has it.
struct TwoLevels {
  std::vector<std::vector<int>> domains;

  std::vector<int> inside(int rank) const;  // its row: the peers in its domain, itself too
  std::vector<int> across(int rank) const;  // its column: the ranks at its place of each domain
};

// `topology` has the numbers that the group has: of the mesh after renumbered(topology, order).
TwoLevels two_levels(const Topology& topology, std::span<const int> group);

}  // namespace lockstep
