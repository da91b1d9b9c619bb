// RunLog: what rank 0 keeps of each step: metrics.jsonl, and event files of TensorBoard. Training
// is worth more than its log: where it cannot be written, that is said once, and training goes on.
#pragma once

#include <atomic>
#include <optional>

#include "core/function_ref.h"
#include "train/metrics_log.h"
#include "train/run_directory.h"
#include "train/tensorboard.h"

namespace lockstep {

class RunLog {
 public:
  // Rank 0: goes on behind `resumed_step`. Throws DataError where that cannot be.
  void open(const RunDirectory& run, std::int64_t resumed_step, bool tensorboard);

  void append(const StepReport& report);
  // Returns when all that was appended is on the disk; by any thread.
  void sync();
  void attempt(FunctionRef<void()> act);  // to write what else is of the log

 private:
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  std::atomic<bool> failed_ = false;
};

}  // namespace lockstep
