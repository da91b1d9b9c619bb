// HostRanks describes the ranks that share a host, and how they save their files.
#pragma once

#include <string>
#include <vector>

#include "dist/job/rank_consistency.h"

namespace lockstep {

struct HostRanks {
  std::vector<int> ranks = {};  // ranks of this host, ascending; empty: each rank by itself
  bool one_file = false;        // the ranks write one file together
  // Each host has a directory of its own. It holds the files of the host's ranks, and a manifest
  // that names all files.
  bool own_directory = false;
  // With own_directory: each directory also holds the files of one other host, if there is one.
  bool partners = false;

  // Name of the file that a rank of this host writes to.
  std::string file_of(int rank) const {
    return one_file ? "node-" + rank_file(ranks.front(), ".safetensors")
                    : rank_file(rank, ".safetensors");
  }
};

}  // namespace lockstep
