// RunLog: what rank 0 keeps of a run and shows of it: metrics.jsonl, event files of TensorBoard,
// the ledger, and what Prometheus reads. Training is worth more than its log: where one of them
// cannot be written, that is said once, and training goes on; as is where it can be again.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "core/function_ref.h"
#include "dist/comms.h"
#include "train/config.h"
#include "train/observe/ledger.h"
#include "train/observe/metrics_log.h"
#include "train/observe/metrics_page.h"
#include "train/observe/tensorboard.h"
#include "train/run_directory.h"

namespace lockstep {

class RunLog {
 public:
  RunLog() = default;  // of ranks that keep none
  // Rank 0, when its process begins: Prometheus sees that it is there. `world` and `run` outlive
  // it: where its watch ends the run, that is the last thing that is written.
  RunLog(World& world, const RunDirectory& run, const Config::Log& config, std::int64_t steps);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  ~RunLog();

  // Rank 0, when the first step begins: goes on behind start.step, and says what the run's time
  // went to before. Throws DataError where metrics.jsonl or event files cannot be written.
  void open(const Config::Log& config, const Ledger::Start& start);

  // Rank 0, where no step is left to do.
  void stay_at(std::int64_t step);

  void append(const StepReport& report);
  // Rank 0, while nothing is saved: what was removed, moved or replaced since it was opened is
  // opened again under its name, as of a run whose last step was `step`.
  void reopen_lost(std::int64_t step);
  // Says what the run's time went to. checkpoint_seconds: of saving behind the last step.
  void end(int exit_code, const std::string& why, double checkpoint_seconds);
  // Returns when all that was appended is on the disk; by any thread.
  void sync();
  void attempt(FunctionRef<void()> act);  // to write what else is of the log, once

 private:
  struct Part {
    const char* name;
    bool failed = false;
    std::int64_t first_missing = 0, last_missing = 0;  // steps; 0: none
  };

  void end_now(int exit_code, const std::string& why, double checkpoint_seconds);
  void cut_off(int exit_code, const std::string& why);
  std::optional<Goodput> goodput() const;
  // What is written again and again. act(): whether it has written, of which `step` is the newest
  // where each step has a line; 0: where nothing is missing once it can be written again.
  void attempt(Part& part, FunctionRef<bool()> act, std::int64_t step = 0);

  void warn_of_missing_lines(std::int64_t step) const;
  void open_metrics(std::int64_t step) { metrics_.emplace(run_->metrics(), step); }
  void open_tensorboard(std::int64_t step) { tensorboard_.emplace(run_->path(), step); }
  void open_ledger(const Ledger::Start& start) { ledger_.emplace(run_->ledger(), start); }

  World* world_ = nullptr;
  const RunDirectory* run_ = nullptr;
  Ledger::Start start_;  // of this process
  bool keeps_tensorboard_ = false;
  std::mutex mutex_;      // cut_off() is called by the watch's thread
  bool ended_ = false;    // which may be said again, by who knows the cause
  bool is_over_ = false;  // nothing more is written
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  std::optional<Ledger> ledger_;
  std::optional<MetricsPage> page_;
  Part metrics_part_{.name = "metrics.jsonl"}, tensorboard_part_{.name = "TensorBoard's file"},
      ledger_part_{.name = "ledger.jsonl"}, page_part_{.name = "what Prometheus reads"};
  std::atomic<bool> sync_failed_ = false;
};

}  // namespace lockstep
