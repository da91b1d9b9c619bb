// StepRunner enqueues the steps of a run on the device, one after the other, and reads their
// results. On a GPU it enqueues the next step before the current one has finished, so that the GPU
// never waits for the host.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/function_ref.h"
#include "train/observe/metrics_log.h"
#include "train/run/run_context.h"
#include "train/step/data_stalls.h"

namespace lockstep {

// The actions due after a step, decided when it is enqueued. After the last step all are due, also
// with an interval of 0. Samples need an interval, and an evaluation needs validation data.
struct Due {
  bool last = false;
  bool line = false, evaluation = false, sample = false, checkpoint = false;
  bool hash = false;        // hash of the weights, see WeightHash
  bool comparison = false;  // with the plan, see StepObserver::observe
  bool phase_end = false;   // the next step is of another phase, for which the run starts again

  // Whether an action needs the numbers of the step before the next one is enqueued.
  bool needs_numbers() const { return last || evaluation || sample || checkpoint; }
};
Due due_after(const RunConfig& config, std::int64_t step);

class StepRunner {
 public:
  explicit StepRunner(Run& run) : run_(run), data_stalls_(run.host.stream) {}  // must outlive this

  // An enqueued step.
  struct Enqueued {
    std::int64_t step = 0, tokens_seen = 0;
    double learning_rate = 0;
    Due due;
  };
  // Enqueues the next step. before_update: waits for readers of the state that the update changes.
  Enqueued enqueue(FunctionRef<void()> before_update) { return enqueue(before_update, false); }
  // Enqueues the next step with a weight hash, and returns its result.
  RecordedStep compute();

  // The result of a step.
  struct Result {
    Training::Numbers numbers;
    std::chrono::steady_clock::time_point done;  // as the host saw it
    StepTime traced;
    double data_wait_seconds = 0;
    std::optional<std::uint64_t> weight_hash;  // if it was due
  };
  // Waits for the oldest step that was not read. Sets RunPosition::stop, ::request and
  // ::save_agreed to what ranks agreed on.
  Result read(const Enqueued& enqueued);

 private:
  Enqueued enqueue(FunctionRef<void()> before_update, bool must_hash);
  int signal() const;  // see RunPosition::signal
  Batch next_batch(int micro_step);
  void note_samples(int micro_step);

  Run& run_;
  DataStalls data_stalls_;
};

}  // namespace lockstep
