// RunLog: what rank 0 keeps of a run and shows of it: metrics.jsonl, event files of TensorBoard,
// the ledger, and what Prometheus reads. Training is worth more than its log: where one of them
// cannot be written, that is said once, and training goes on.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "core/function_ref.h"
#include "train/config.h"
#include "train/ledger.h"
#include "train/metrics_log.h"
#include "train/metrics_page.h"
#include "train/run_directory.h"
#include "train/tensorboard.h"

namespace lockstep {

class RunLog {
 public:
  // Rank 0, when the first step begins: goes on behind start.step, and says what the run's time
  // went to before. Throws DataError where metrics.jsonl or event files cannot be written.
  void open(const RunDirectory& run, const Config::Log& config, const Ledger::Start& start);

  void append(const StepReport& report);
  // Says what the run's time went to. checkpoint_seconds: of saving behind the last step.
  void end(int exit_code, const std::string& why, double checkpoint_seconds);
  // Returns when all that was appended is on the disk; by any thread.
  void sync();
  void attempt(FunctionRef<void()> act);  // to write what else is of the log, once

 private:
  using Failed = std::atomic<bool>;

  std::optional<Goodput> goodput() const;
  void attempt(Failed& failed, FunctionRef<void()> act);  // what is written again and again

  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  std::optional<Ledger> ledger_;
  std::optional<MetricsPage> page_;
  Failed metrics_failed_ = false, ledger_failed_ = false, page_failed_ = false;
};

}  // namespace lockstep
