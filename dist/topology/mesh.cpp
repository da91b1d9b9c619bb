#include "dist/topology/mesh.h"

namespace lockstep {

const char* name(Axis axis) {
  switch (axis) {
    case Axis::replicate: return "replicate";
    case Axis::shard: return "shard";
    case Axis::tensor: return "tensor";
  }
  return "?";
}

int Mesh::stride(Axis axis) const {
  switch (axis) {
    case Axis::replicate: return shard * tensor;
    case Axis::shard: return tensor;
    case Axis::tensor: break;
  }
  return 1;
}

int Mesh::coordinate(Axis axis, int rank) const {
  return rank / stride(axis) % size(axis);
}

std::vector<int> Mesh::peers(Axis axis, int rank) const {
  const int first = rank - coordinate(axis, rank) * stride(axis);
  std::vector<int> ranks;
  for (int i = 0; i < size(axis); ++i)
    ranks.push_back(first + i * stride(axis));
  return ranks;
}

}  // namespace lockstep
