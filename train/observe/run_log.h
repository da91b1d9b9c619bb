// RunLog writes the logs of a run on rank 0: metrics.jsonl, TensorBoard event files, the ledger,
// and the metrics for Prometheus. If one of them cannot be written, RunLog warns once and training
// continues. When it can be written again, RunLog logs that.
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
  RunLog() = default;  // for ranks that write no logs
  // Rank 0 makes it when its process begins, and publishes that for Prometheus. `world` and `run`
  // outlive it. If the failure detector of `world` aborts the run, the abort is logged last.
  RunLog(World& world, const RunDirectory& run, const Config& config);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  ~RunLog();

  // Rank 0 calls it when the first step begins. The logs continue after start.step. Logs the
  // goodput of earlier starts. Throws DataError if metrics.jsonl or the event file cannot be
  // written.
  void open(const Config::Log& config, const Ledger::Start& start);

  // Rank 0 calls it instead if no step is left to do.
  void stay_at(std::int64_t step);

  // If metrics.jsonl lost its name, throws as RunDirectory::check().
  void append(const StepReport& report);
  // Counts a save that ended, or with `copied_to` (kCopyTo...) a copy. The metrics for Prometheus
  // show it with the next step.
  void count_save(std::int64_t step, bool failed, const std::string& copied_to = "");
  // Rank 0 calls it while no checkpoint is being saved. Opens files again that were removed, moved
  // or replaced, as for a run whose last step was `step`. First throws as RunDirectory::check(),
  // because the files may be those of another start.
  void reopen_lost(std::int64_t step);
  // Logs the goodput of the run. checkpoint_seconds: time of saving after the last step.
  void end(int exit_code, const std::string& why, double checkpoint_seconds);
  // Returns when all appended records are on the disk. Any thread may call it.
  void sync();
  void attempt(FunctionRef<void()> act);  // calls `act`, which writes, and warns on error

 private:
  struct Part {
    const char* name;
    bool failed = false;
    std::int64_t first_missing = 0, last_missing = 0;  // steps; 0: none
  };

  bool is_taken_over() const;
  void end_now(int exit_code, const std::string& why, double checkpoint_seconds);
  void cut_off(int exit_code, const std::string& why);
  std::optional<Goodput> goodput() const;
  // Calls `act`, which writes to `part` and returns whether it did, and handles errors.
  //   step  newest step of the write, for logs with a line per step; 0: a failure leaves no gap
  void attempt(Part& part, FunctionRef<bool()> act, std::int64_t step = 0);

  void warn_of_missing_lines(std::int64_t step) const;
  void open_metrics(std::int64_t step) { metrics_.emplace(run_->metrics(), step); }
  void open_tensorboard(std::int64_t step) { tensorboard_.emplace(run_->path(), step); }
  void open_ledger(const Ledger::Start& start) { ledger_.emplace(run_->ledger(), start); }

  World* world_ = nullptr;
  const RunDirectory* run_ = nullptr;
  Ledger::Start start_;  // of this process
  bool keeps_tensorboard_ = false;
  std::mutex mutex_;      // the heartbeat's thread calls cut_off()
  bool ended_ = false;    // an end was logged; cut_off() may log the cause again
  bool is_over_ = false;  // no more writes
  std::optional<MetricsLog> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  std::optional<Ledger> ledger_;
  std::optional<MetricsPage> page_;
  Part metrics_part_{.name = "metrics.jsonl"}, tensorboard_part_{.name = "TensorBoard's file"},
      ledger_part_{.name = "ledger.jsonl"}, page_part_{.name = "the metrics for Prometheus"};
  std::atomic<bool> sync_failed_ = false;
};

}  // namespace lockstep
