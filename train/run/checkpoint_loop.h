// CheckpointLoop writes a run's checkpoints during training, one at a time, while later steps run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/run/run_context.h"

namespace lockstep {

class CheckpointLoop {
 public:
  explicit CheckpointLoop(Run& run) : run_(run) {}  // must outlive this

  // Begins to save the last finished step. Waits while an earlier save is written.
  //   validation_loss   its validation loss, if evaluated
  //   weight_hash       the hash of its weights, if known; else it is computed
  // Returns the seconds that training waited. Throws, at rank 0, as RunDirectory::check().
  double begin(std::optional<double> validation_loss, std::optional<std::uint64_t> weight_hash);

  // Each logs the result of a save that has ended. Each throws StorageError, on all ranks, after
  // checkpoint.most_failed consecutive failures.
  void poll();
  void await();  // waits for a save under way
  // Step of the last save that has ended, saved or not; -1: none.
  std::int64_t ended_step() const { return ended_step_; }
  // Waits for the save if it reads the training state itself, which the update would change.
  void await_before_update();

  // Writes the final checkpoint unless the step is saved already, and returns the seconds that it
  // took. Throws if it cannot be written; if copies_must_arrive, also if it cannot be copied to its
  // other destinations.
  double end(std::optional<double> validation_loss, std::optional<std::uint64_t> weight_hash,
             bool copies_must_arrive);

  // Waits for all saves and copies under way, and logs their failures.
  void give_up();

  std::string last_good() const;  // "the last good checkpoint is ...", for errors

 private:
  void told(const BackgroundSave::Outcome& outcome);
  void failed(std::int64_t step, const DataError& error);
  void count_copy(const BackgroundCopies::Outcome& copied);
  void finish_copies(bool copies_must_arrive);

  Run& run_;
  bool saving_ = false;   // true while any rank is saving (agreed by all ranks)
  bool leaving_ = false;  // the run ends anyway: failures of earlier saves do not end it
  bool ending_ = false;   // the save under way is the final one: no later save retries it
  std::int64_t failed_in_a_row_ = 0;
  std::int64_t ended_step_ = -1;
};

}  // namespace lockstep
