// Who holds what of a run's state, who of them counts it, and who reads which data: pure functions
// of the mesh. Whatever is summed over ranks asks here, so that each element and each token counts
// once.
#pragma once

#include <array>

#include "dist/topology/mesh.h"

namespace lockstep {

// The ranks that hold the same elements, and which of them this one is.
struct Holders {
  int count = 1, number = 0;
  bool counts() const { return number == 0; }  // for all of them: in norms, hashes, checkpoints
};
// is_divided: of elements that tensor ranks divide; else each tensor rank has all of them, as of
// norms.
Holders holders_of(const Mesh& mesh, bool is_divided, int rank);

// Ranks with the same place hold the same.
std::array<int, 2> place_in_state(const Mesh& mesh, bool is_divided, int rank);

// Tensor ranks read the same tokens: one of them counts these, and what comes of them.
bool counts_tokens(const Mesh& mesh, int rank);

// Which sequences a rank reads: those of number `rank` of `ranks`.
struct DataPlace {
  int rank = 0, ranks = 1;
};
DataPlace data_place(const Mesh& mesh, int rank);

}  // namespace lockstep
