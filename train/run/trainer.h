// Trainer runs training from a first start, or from the newest checkpoint, to the last step.
#pragma once

#include "train/run/train_options.h"

namespace lockstep {

// train() returns this if the caller shall call it again, with what the run's directory now says:
// the next phase begins, or a live request changes the run.
inline constexpr int kTrainAgain = -1;

// Trains. Returns the exit code: 0 after the last step, 130 after SIGINT or the request `stop`, 75
// after SIGTERM or SIGUSR1, or kTrainAgain; in all cases everything is saved. Otherwise it throws
// the error that ended the run.
int train(const TrainOptions& options, const RunRanks& ranks);

}  // namespace lockstep
