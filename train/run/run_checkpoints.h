// RunCheckpoints: where a run's checkpoints are, and go: in its directory; or first in one of each
// machine's own, and from there to its directory; and from that to an archive.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/background_copies.h"
#include "checkpoint/background_save.h"
#include "checkpoint/checkpointer.h"
#include "dist/topology/topology.h"
#include "train/config.h"

namespace lockstep {

class RunCheckpoints {
 public:
  // The tensors of `state`, and `world`, outlive this. All ranks at once.
  //   directory: the run's, of checkpoints       topology: see RunRanks
  RunCheckpoints(const Config::Checkpoint& config, std::filesystem::path directory,
                 const std::vector<StateSlice>& state, World& world, const Topology* topology);

  // Checkpointer's, of the run's directory, and of what machines have of their own and the archive
  // has, which comes there first. Of a step that is here too, those are for where it is damaged.
  // What was taken away from here is not brought again, but for the archive's to where nothing is.
  std::optional<Json> load_newest(FunctionRef<void(const Json& about)> accept);
  // All ranks at once: whether a newer one than the run's directory has is elsewhere.
  bool has_newer_elsewhere() const;
  Json load(std::int64_t step) const { return of_run_.load(step); }

  // BackgroundSave's. One that is saved goes on from there by itself.
  void begin(BackgroundSave::Save save);
  std::optional<BackgroundSave::Outcome> poll() { return passed_on(save_.poll()); }
  std::optional<BackgroundSave::Outcome> wait() { return passed_on(save_.wait()); }
  void log_copies() { log_copies("; training continues"); }  // of copies that ended since
  // All ranks at once: returns when all that is saved went where it goes. Throws DataError where
  // the newest is in machines' own directories alone.
  void finish();

  // Where one of this run is, its own directory first; "": nowhere that this rank sees.
  std::filesystem::path find(std::int64_t step) const;

 private:
  void add_candidates(std::vector<Checkpointer::Candidate>& candidates,
                      const CheckpointCopies& copies, std::int64_t newest_here) const;
  // Of machines' own directories and of the archive, which come to the run's.
  std::vector<Checkpointer::Candidate> elsewhere(std::int64_t newest_here) const;
  void log_copies(const char* what_then);
  void set_aside_behind(std::int64_t loaded) const;
  void check_directories() const;
  void make_directories_beside_run() const;
  std::optional<BackgroundSave::Outcome> passed_on(std::optional<BackgroundSave::Outcome> saved);

  World& world_;
  std::filesystem::path directory_, local_, archive_;  // the last two may be empty
  MachineRanks machine_;
  Retention retention_;
  Checkpointer of_run_;
  std::optional<Checkpointer> of_machine_;
  std::vector<std::int64_t> keep_;  // of the save under way
  std::optional<BackgroundCopies> copies_;
  std::int64_t newest_saved_ = -1;
  std::exception_ptr newest_not_copied_;  // to the run's directory
  BackgroundSave save_;                   // behind all that its thread uses
};

}  // namespace lockstep
