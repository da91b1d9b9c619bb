#include "train/run_log.h"

#include "core/log.h"

namespace lockstep {

void RunLog::open(const RunDirectory& run, const Config::Log& config, const Ledger::Start& start) {
  metrics_.emplace(run.metrics(), start.step);
  if (config.tensorboard) tensorboard_.emplace(run.path(), start.step);
  attempt(ledger_failed_, [&] { ledger_.emplace(run.ledger(), start); });
  if (ledger_ && ledger_->goodput().restarts > 0) log_info(in_words(ledger_->goodput()));
  page_.emplace(run, config, start.step);
}

std::optional<Goodput> RunLog::goodput() const {
  return ledger_ ? std::optional(ledger_->goodput()) : std::nullopt;
}

void RunLog::append(const StepReport& report) {
  attempt(metrics_failed_, [&] {
    if (metrics_) metrics_->append(report);
    if (tensorboard_) tensorboard_->append(report);
  });
  attempt(ledger_failed_, [&] {
    if (ledger_) ledger_->append(report);
  });
  attempt(page_failed_, [&] {
    if (page_) page_->show(report, goodput());
  });
}

void RunLog::end(int exit_code, const std::string& why, double checkpoint_seconds) {
  attempt(ledger_failed_, [&] {
    if (ledger_) ledger_->end(exit_code, why, checkpoint_seconds);
  });
  attempt(page_failed_, [&] {
    if (page_) page_->end(goodput(), checkpoint_seconds);
  });
  if (ledger_) log_info(in_words(ledger_->goodput()));
}

void RunLog::sync() {
  attempt(metrics_failed_, [&] {
    if (metrics_) metrics_->sync();
    if (tensorboard_) tensorboard_->sync();
  });
  attempt(ledger_failed_, [&] {
    if (ledger_) ledger_->sync();
  });
}

void RunLog::attempt(FunctionRef<void()> act) {
  Failed failed = false;
  attempt(failed, act);
}

void RunLog::attempt(Failed& failed, FunctionRef<void()> act) {
  try {
    act();
  } catch (const DataError& error) {
    if (!failed.exchange(true))
      log_own_warning(error.what(), "; the run goes on, its logs have holes");
  }
}

}  // namespace lockstep
