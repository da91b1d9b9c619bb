// Holders: which ranks hold the same state, which of them counts it, and which sequences a rank
// reads. All are pure functions of the mesh. Sums over ranks use them, so that each element and
// each token counts once.
#pragma once

#include <array>

#include "dist/topology/mesh.h"

namespace lockstep {

// Number of ranks that hold the same elements, and this rank's number among them.
struct Holders {
  int count = 1, number = 0;
  // True for the one rank that counts the elements in norms, hashes and checkpoints.
  bool counts() const { return number == 0; }
};
// is_divided: the tensor ranks divide the elements. Otherwise each tensor rank holds all of them,
// for example the weights of a norm.
Holders holders_of(const Mesh& mesh, bool is_divided, int rank);

// Place of a rank in the divided state. Ranks with the same place hold the same elements.
std::array<int, 2> place_in_state(const Mesh& mesh, bool is_divided, int rank);

// True if the rank counts tokens and losses. Tensor ranks read the same tokens, so one of them
// does.
bool counts_tokens(const Mesh& mesh, int rank);

// The rank reads data as number `rank` of `ranks` readers.
struct DataPlace {
  int rank = 0, ranks = 1;
};
DataPlace data_place(const Mesh& mesh, int rank);

}  // namespace lockstep
