// MachineRanks: the ranks that share a machine, and what that means for the files they save.
#pragma once

#include <string>
#include <vector>

#include "dist/job/agreement.h"

namespace lockstep {

// Ranks of one machine, this one too, ascending; none: each is one of its own.
struct MachineRanks {
  std::vector<int> ranks = {};
  bool one_file = false;  // they write one together
  // The directory is another one on each machine: it holds the files of its ranks, and a manifest
  // that names all.
  bool own_directory = false;
  // Of directories of their own: each holds the files of one more machine, if there is one.
  bool partners = false;

  // Of the file that a rank of this machine writes into.
  std::string file_of(int rank) const {
    return one_file ? "node-" + rank_file(ranks.front(), ".safetensors")
                    : rank_file(rank, ".safetensors");
  }
};

}  // namespace lockstep
