#include "train/run_log.h"

#include "core/log.h"

namespace lockstep {

void RunLog::open(const RunDirectory& run, std::int64_t resumed_step, bool tensorboard) {
  metrics_.emplace(run.metrics(), resumed_step);
  if (tensorboard) tensorboard_.emplace(run.path(), resumed_step);
}

void RunLog::append(const StepReport& report) {
  attempt([&] {
    if (metrics_) metrics_->append(report);
    if (tensorboard_) tensorboard_->append(report);
  });
}

void RunLog::sync() {
  attempt([&] {
    if (metrics_) metrics_->sync();
    if (tensorboard_) tensorboard_->sync();
  });
}

void RunLog::attempt(FunctionRef<void()> act) {
  try {
    act();
  } catch (const DataError& error) {
    if (!failed_) log_own_warning(error.what(), "; the run goes on, its logs have holes");
    failed_ = true;
  }
}

}  // namespace lockstep
