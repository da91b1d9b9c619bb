// CheckpointLoop: a run's checkpoints while it trains, one after the other, each written beside the
// steps that follow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/run/run_context.h"

namespace lockstep {

class CheckpointLoop {
 public:
  explicit CheckpointLoop(Run& run) : run_(run) {}  // which outlives it

  // Of the step that was finished last. Training waits while an earlier one is written.
  //   validation_loss   where that was evaluated behind this step
  //   weight_hash       of its weights, where it is known; else it is computed
  // Returns the seconds that training waited. Throws, at rank 0, as RunDirectory::check().
  double begin(std::optional<double> validation_loss, std::optional<std::uint64_t> weight_hash);

  void poll();   // says how one ended, where one did
  void await();  // returns when none is under way
  // The update must not change what is saved: where that is the state itself, waits for the save.
  void await_before_update();

  // The last one: throws where it cannot be written. must: or cannot go where it goes from there.
  // Returns the seconds that it took.
  double end(std::optional<double> validation_loss, std::optional<std::uint64_t> weight_hash,
             bool must);

  // Waits for all that is under way; what fails of it, the log says.
  void give_up();

  std::string last_good() const;  // "the last good checkpoint is ...", for errors

 private:
  void told(const BackgroundSave::Outcome& outcome);
  void finish_copies(bool must);

  Run& run_;
  bool saving_ = false;  // began to save since all last waited for it, to all ranks' knowledge
  bool ending_ = false;  // what is saved now is the end of the run: nothing will try again
};

}  // namespace lockstep
