// Trainer runs training from a first start, or from the newest checkpoint, to the last step.
#pragma once

#include "train/run/train_options.h"

namespace lockstep {

// Trains. Returns the exit code: 0 after the last step, 130 after SIGINT, and 75 after SIGTERM or
// SIGUSR1, or if the next phase needs another start; in all cases everything is saved. Otherwise it
// throws the error that ended the run.
int train(const TrainOptions& options, const RunRanks& ranks);

}  // namespace lockstep
