// RunCheckpoints stores a run's checkpoints in the run directory. With a local directory, ranks
// save there first and a thread copies to the run directory; a resume reads them from there. With
// an archive, a thread also copies from the run directory to the archive.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/background_copies.h"
#include "checkpoint/background_save.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/host_restore.h"
#include "dist/topology/topology.h"
#include "train/config.h"

namespace lockstep {

class RunCheckpoints {
 public:
  // Collective. The tensors of `state`, `world`, and the epoch of `directory` must outlive this.
  //   directory: checkpoints of the run directory       topology: see RunRanks
  RunCheckpoints(const Config::Checkpoint& config, const CheckpointDirectory& directory,
                 const std::vector<StateSlice>& state, World& world, const Topology* topology);

  // Loads the newest checkpoint, as Checkpointer::load_newest. Candidates are also the checkpoints
  // of local directories, read by range (HostRestore), and of the archive, which are first copied
  // to the run directory. If the run directory has another save of the same step, that one is tried
  // first. A checkpoint deleted from the run directory is not restored from local copies; the
  // archive is used only if the directory is empty.
  std::optional<Json> load_newest(FunctionRef<void(const Json& about)> accept);
  // Loads the checkpoint of `step`, wherever it is. Throws ConfigError if there is none.
  Json load_from(std::int64_t step, FunctionRef<void(const Json& about)> accept);
  // Whether there is a checkpoint after `step` anywhere. Collective.
  bool has_after(std::int64_t step);
  // Renames the checkpoints after `step` to step-N.replaced-K, also in the archive. Those of local
  // directories are deleted if they were copied. Collective.
  void abandon_after(std::int64_t step);
  // The `about` of the newest checkpoint with a valid manifest, as rank 0 sees it; else null.
  Json newest_about() const;
  // Loads the checkpoint of `step`, which was found before. Collective.
  Json load(std::int64_t step);
  // Copies a checkpoint that was loaded from local directories to the run directory in the
  // background, if it is due there and missing. Collective.
  //   keep: see Checkpointer::save      is_last: the run's last checkpoint, which is always due
  void copy_resumed(std::int64_t step, const std::vector<std::int64_t>& keep, bool is_last);

  // As BackgroundSave. If `copies`, a finished save is then copied in the background.
  void begin(BackgroundSave::Save save, bool copies);
  std::optional<BackgroundSave::Outcome> poll() { return passed_on(save_.poll()); }
  std::optional<BackgroundSave::Outcome> wait() { return passed_on(save_.wait()); }
  // Called with each copy that ended.
  using OnCopy = FunctionRef<void(const BackgroundCopies::Outcome&)>;
  // Logs the copies that ended since the last call.
  void log_copies(OnCopy on_copy) { log_copies("; training continues", on_copy); }
  // Waits until all copies are done, logs them, and frees the space of deleted checkpoints.
  // Collective. Throws DataError if the newest checkpoint exists only in local directories.
  void finish(OnCopy on_copy);

  // Path of the checkpoint, in the run directory if it is there; "" if this rank sees none.
  std::filesystem::path find(std::int64_t step) const;

 private:
  void add_of_hosts(std::vector<Checkpointer::Candidate>& candidates);
  void add_of_archive(std::vector<Checkpointer::Candidate>& candidates,
                      std::int64_t newest_here) const;
  void log_copies(const char* what_then, OnCopy on_copy);
  std::vector<Checkpointer::Candidate> all_candidates();  // newest first
  void set_aside_after(std::int64_t loaded) const;
  void check_directories() const;
  void check_room(bool has_partner) const;
  void make_directories_beside_run() const;
  std::optional<BackgroundSave::Outcome> passed_on(std::optional<BackgroundSave::Outcome> saved);

  World& world_;
  std::vector<StateSlice> state_;
  std::filesystem::path directory_, local_, archive_;  // the last two may be empty
  const Epoch* epoch_;                                 // of directory_
  std::int64_t copy_every_;                            // checkpoint.every_steps
  HostRanks machine_;
  Retention retention_;
  Checkpointer of_run_;
  std::optional<Checkpointer> of_machine_;
  std::optional<HostRestore> of_hosts_;
  std::vector<std::int64_t> keep_;  // of the save in progress
  bool copies_saved_ = false;       // the save in progress is due in the run directory
  std::optional<BackgroundCopies> copies_;
  std::int64_t newest_saved_ = -1;
  std::exception_ptr newest_not_copied_;  // error of its copy to the run directory
  BackgroundSave save_;                   // destroyed before the members that its thread uses
};

}  // namespace lockstep
