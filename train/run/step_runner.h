// StepRunner: gives the device the steps of a run, one after the other, and reads what came of
// each. A GPU is given the next step before it has done this one, so that it never waits for the
// host.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/function_ref.h"
#include "train/observe/metrics_log.h"
#include "train/run/run_context.h"
#include "train/step/data_waits.h"

namespace lockstep {

// What is due after a step; decided once, when the step is given to the device. After the last step
// all is, with a period of 0 too; without a period of samples, or validation data, these never are.
struct Due {
  bool last = false;
  bool line = false, evaluation = false, sample = false, checkpoint = false;
  bool hash = false;  // of the weights, see WeightHash
};
Due due_after(const RunConfig& config, std::int64_t step);

class StepRunner {
 public:
  explicit StepRunner(Run& run) : run_(run), data_waits_(run.host.stream) {}  // which outlives it

  // A step that the device was given.
  struct Enqueued {
    std::int64_t step = 0, tokens_seen = 0;
    double learning_rate = 0;
    Due due;
  };
  // The next one. before_update: waits for what the update must not change yet.
  Enqueued enqueue(FunctionRef<void()> before_update) { return enqueue(before_update, false); }
  // The next one, whose weights are hashed whatever is due, and what came of it.
  RecordedStep compute();

  // What came of one.
  struct Result {
    Training::Numbers numbers;
    std::chrono::steady_clock::time_point done;  // as the host saw it
    StepTime traced;
    double data_wait_seconds = 0;
    std::optional<std::uint64_t> weight_hash;  // where it was due
  };
  // Waits for it; the oldest that was not read. Takes over with which exit code ranks agree to
  // stop.
  Result read(const Enqueued& enqueued);

 private:
  Enqueued enqueue(FunctionRef<void()> before_update, bool must_hash);
  Batch next_batch(int micro_step);

  Run& run_;
  DataWaits data_waits_;
};

}  // namespace lockstep
