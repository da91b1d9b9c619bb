// restore_plan decides which host's copy of each file a restore reads. It is a pure function of the
// files that hosts hold in their own directories, so every rank computes the same plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Files of one save in one host's own directory. Two saves of a step have different hashes.
struct HeldFiles {
  int host = 0;  // hosts are numbered in the order of their first ranks
  std::int64_t step = 0;
  std::string save;  // hash that the manifest states
  std::size_t files_in_all = 0;
  bool was_copied = false;         // to the shared directory
  std::vector<std::size_t> files;  // indices in the manifest; each file has the right size
};

// The sources of one save.
class RestorePlan {
 public:
  static constexpr int kShared = -1;   // the file is read from the shared directory
  static constexpr int kNowhere = -2;  // no source is left

  std::int64_t step = 0;
  std::string save;
  bool was_copied = false;                // if the copy is gone, a person deleted it
  bool is_shared = false;                 // the shared directory has all files of this save
  std::vector<std::vector<int>> holders;  // hosts that have each file, ascending

  // Where `host` reads a file: from its own directory if it is there. Otherwise from the nearest
  // host before it, in the circular order of hosts. The hosts of a replica then spread evenly over
  // the two copies of a file, which are half of the job apart. The shared directory comes last.
  int source_of(std::size_t file, int host) const;
  // The number of files without a source.
  std::size_t missing() const;
  // Removes a source that turned out to be damaged or lost.
  void drop(int host, std::size_t file);
  void drop(int host);
};

// The plans of all saves, newest step first; those that lack a file have missing() > 0.
//   shared: step and hash of the saves in the shared directory
std::vector<RestorePlan> plan_restore(
    std::span<const HeldFiles> held,
    const std::set<std::pair<std::int64_t, std::string>>& shared = {});

}  // namespace lockstep
