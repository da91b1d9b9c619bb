// write_events DIR: writes the event files of a run of 20 steps. The run stopped after step 15 and
// resumed from the checkpoint of step 10 with other losses. tensorboard_test.py reads the files.
#include <iostream>

#include "train/observe/tensorboard.h"

namespace {

using namespace lockstep;

void steps(TensorBoardLog& log, std::int64_t first, std::int64_t last, double offset) {
  for (std::int64_t step = first; step <= last; ++step) {
    StepReport r;
    r.step = step;
    r.loss = offset + 1.0 / static_cast<double>(step);
    r.grad_norm = 0.5;
    r.learning_rate = 6e-4;
    r.step_seconds = 0.25;
    r.tokens_per_second = 1e6;
    if (step % 5 == 0) r.validation_loss = offset + 2;
    log.append(r);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_events DIR\n";
    return 64;
  }
  {
    TensorBoardLog log(argv[1], 0);
    steps(log, 1, 15, 100);
  }
  TensorBoardLog log(argv[1], 10);
  steps(log, 11, 20, 200);
}
