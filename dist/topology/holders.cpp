#include "dist/topology/holders.h"

namespace lockstep {

Holders holders_of(const Mesh& mesh, bool is_divided, int rank) {
  const int copy = mesh.coordinate(Axis::replicate, rank);
  if (is_divided) return {mesh.replicate, copy};
  return {mesh.replicate * mesh.tensor, copy * mesh.tensor + mesh.coordinate(Axis::tensor, rank)};
}

std::array<int, 2> place_in_state(const Mesh& mesh, bool is_divided, int rank) {
  return {mesh.coordinate(Axis::shard, rank), is_divided ? mesh.coordinate(Axis::tensor, rank) : 0};
}

bool counts_tokens(const Mesh& mesh, int rank) {
  return mesh.coordinate(Axis::tensor, rank) == 0;
}

DataPlace data_place(const Mesh& mesh, int rank) {
  return {rank / mesh.tensor, mesh.world() / mesh.tensor};
}

}  // namespace lockstep
