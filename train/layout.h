// How the ranks of a run share it: what the keys of [layout] make of as many ranks as were started.
#pragma once

#include "dist/mesh.h"
#include "dist/param_store.h"
#include "train/config.h"

namespace lockstep {

// Throws ConfigError where the axes are not for this many ranks. layout.sharding = "none" makes the
// ranks of layout.shard further copies of the model.
Mesh mesh_of(const Config::Layout& layout, int ranks);
Sharding sharding_of(const Config::Layout& layout);

// Of a rank, which sequences it reads: number `rank` of `ranks`. Tensor ranks read the same.
struct DataPlace {
  int rank = 0, ranks = 1;
};
DataPlace data_place(const Mesh& mesh, int rank);

}  // namespace lockstep
