// Partners copies the files in a host's own directory to another host, its partner. No checkpoint
// is lost if one host fails, or if neighbouring hosts fail together, such as those of a rack.
// Copies use TCP and run in parallel with training.
#pragma once

#include <algorithm>
#include <filesystem>
#include <vector>

#include "checkpoint/all_ranks.h"
#include "checkpoint/host_ranks.h"
#include "checkpoint/manifest.h"
#include "dist/job/handshake.h"

namespace lockstep {

// The host that keeps the copies of `host`: the one half of the job away, in the order of ranks,
// in which launchers place neighbours one after the other. So any hosts/2 consecutive hosts may
// fail together. Each host is the partner of one.
inline std::size_t partner_of(std::size_t host, std::size_t hosts) {
  return (host + std::max<std::size_t>(hosts / 2, 1)) % hosts;
}

class Partners {
 public:
  static constexpr Milliseconds kPatience{30'000};

  // Called by all ranks, before training.
  //   patience: timeout for a host to connect, and for each piece that it sends or receives
  Partners(const AllRanks& ranks, const HostRanks& machine, Milliseconds patience = kPatience);

  // Called by all ranks. Each host's `checkpoint` has the host's own files of this manifest. The
  // call adds the files of the host whose partner this one is, verified and synced to disk. Throws
  // DataError on all ranks if a copy fails. With one host it does nothing.
  //   acted: see AllRanks::act
  void copy(const AllRanks& ranks, const std::string& manifest,
            const std::filesystem::path& checkpoint, FunctionRef<void()> acted) const;

 private:
  Deadline soon() const { return Clock::now() + patience_; }
  bool leads() const { return machines_[here_].leader == rank_; }
  struct Machine {
    int leader = 0;                  // first rank of the host
    std::vector<std::string> files;  // files that its ranks may write
  };
  // Indices of the manifest's files that a host wrote.
  static std::vector<std::size_t> files_of(const Machine& machine,
                                           const CheckpointManifest& manifest);
  void exchange(const AllRanks& ranks, const std::string& manifest,
                const std::filesystem::path& checkpoint, FunctionRef<void()> acted) const;
  void give(const Membership& to, const CheckpointManifest& manifest,
            const std::filesystem::path& checkpoint) const;
  void take(const Socket& listener, const Secret& secret, const CheckpointManifest& manifest,
            const std::filesystem::path& checkpoint) const;

  int rank_;
  Milliseconds patience_;
  std::vector<Machine> machines_;  // hosts in the order of their first ranks
  std::size_t here_ = 0;
  std::size_t partner_ = 0, given_by_ = 0;  // receives our files; sends its files to us
};

}  // namespace lockstep
