// Partners: what a machine saves in a directory of its own goes to another machine's too, the next
// one in a ring, so that a lost machine takes nothing with it. Over TCP, and beside training.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/all_ranks.h"
#include "checkpoint/machine_ranks.h"
#include "checkpoint/manifest.h"
#include "dist/job/handshake.h"

namespace lockstep {

class Partners {
 public:
  static constexpr Milliseconds kPatience{30'000};

  // All ranks at once, before training.
  //   patience: for a machine to connect, and for each piece that it sends or takes
  Partners(const AllRanks& ranks, const MachineRanks& machine, Milliseconds patience = kPatience);

  // All ranks at once: then `checkpoint`, where each machine has its own files of this manifest,
  // holds those of the machine before it too, each byte of them checked and on the disk. Throws
  // DataError on all ranks where that cannot be. Where there is one machine it does nothing.
  //   acted: see AllRanks::act
  void copy(const AllRanks& ranks, const std::string& manifest,
            const std::filesystem::path& checkpoint, FunctionRef<void()> acted) const;

 private:
  Deadline soon() const { return Clock::now() + patience_; }
  bool leads() const { return machines_[here_].leader == rank_; }
  struct Machine {
    int leader = 0;                  // its first rank
    std::vector<std::string> files;  // that its ranks may write
  };
  // Of the manifest's those that a machine wrote.
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
  std::vector<Machine> machines_;  // in the order of the ring
  std::size_t here_ = 0, next_ = 0, previous_ = 0;
};

}  // namespace lockstep
