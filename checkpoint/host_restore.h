// HostRestore loads a checkpoint from the directories of the hosts, for example in their memory. A
// rank reads the files of its own host, and fetches ranges of other files from hosts that have them
// over TCP. Nothing is copied to the shared directory.
//
// Every byte that is loaded is verified: against the hash of the manifest where a whole slice is
// read. Where another layout needs only a part of a slice, each host first verifies all files that
// it has of this checkpoint, and a hash travels with each range.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "checkpoint/load.h"
#include "checkpoint/partners.h"
#include "checkpoint/restore_plan.h"

namespace lockstep {

class HostRestore {
 public:
  // `world` must outlive this. All ranks make each call.
  //   local: each host's own directory      shared: of all ranks; may have the same saves
  //   patience: timeout for a host to connect, and for each piece that it sends
  HostRestore(World& world, std::filesystem::path local, std::filesystem::path shared,
              const HostRanks& machine, Milliseconds patience = Partners::kPatience);

  struct Found {
    std::int64_t step = 0;
    std::string save;         // hash that the manifest states
    bool was_copied = false;  // to the shared directory before; if it is gone, a person deleted it
    bool is_shared = false;   // the shared directory has this save
  };
  // Saves of which each file is on some host or in the shared directory, newest first. The log
  // names incomplete ones.
  //   shared_steps: checkpoints in the shared directory
  std::vector<Found> find(std::span<const std::int64_t> shared_steps);

  // Loads a save of the last find() into the state, and returns its `about`. If a file is damaged
  // on one host, or the host is lost, it is read from another one, and last from the shared
  // directory. Throws DataError if no source is left, and what `accept` throws.
  Json load(const Found& found, std::span<const StateSlice> state,
            FunctionRef<void(const Json& about)> accept);

 private:
  struct Loading;
  struct Failure;
  bool leads() const { return machine_.ranks.front() == ranks_.rank(); }
  int here() const;  // number of this host
  std::string look() const;
  void agree(Loading& loading, const Found& found,
             FunctionRef<void(const Json& about)> accept) const;
  bool drop(Loading& loading, FunctionRef<std::vector<Failure>()> act) const;
  std::vector<Failure> verify_held(const Loading& loading) const;
  void open_server(Loading& loading) const;
  std::vector<Failure> load_missing(Loading& loading) const;
  void log_loaded(const Loading& loading, double seconds) const;

  AllRanks ranks_;
  std::filesystem::path local_, shared_;
  HostRanks machine_;
  Milliseconds patience_;
  std::vector<int> leaders_;        // first ranks of the hosts
  std::vector<RestorePlan> plans_;  // at rank 0
};

}  // namespace lockstep
