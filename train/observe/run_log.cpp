#include "train/observe/run_log.h"

#include <chrono>
#include <exception>
#include <utility>

#include "core/file.h"
#include "core/log.h"

namespace lockstep {
namespace {

void warn(const std::exception& error) {
  log_own_warning(error.what(), "; training continues, some log lines will be missing");
}

}  // namespace

RunLog::RunLog(World& world, const RunDirectory& run, const Config& config)
    : world_(&world), run_(&run) {
  page_.emplace(run, config);
  attempt(page_part_, [&] {
    page_->publish();
    return true;
  });
  world.set_exit_handler(
      [this](const std::string& why, int exit_code, const auto&) { cut_off(exit_code, why); });
}

RunLog::~RunLog() {
  if (world_ != nullptr) world_->set_exit_handler({});
  if (!ended_ && !is_taken_over()) end_now(1, "", 0);  // the run computed no step
}

// A resumed run continues its logs, in which lines of earlier steps may be missing.
void RunLog::warn_of_missing_lines(std::int64_t step) const {
  constexpr char kAdvice[] = "If there is a copy of the file, stop the run and put it back";
  const auto file = run_->metrics().string();
  if (metrics_->kept_step() < step)
    log_warning(file, ": the last step is ", metrics_->kept_step(), "; expected step ", step,
                ", which the run resumes from. Reports will lack the steps between. ", kAdvice);
  else if (const auto missing = step - metrics_->kept_steps(); missing > 0)
    log_warning(file, ": ", missing, " of the steps 1 to ", step,
                missing == 1 ? " has no line. Reports will lack it. "
                             : " have no line. Reports will lack them. ",
                kAdvice);
}

void RunLog::open(const Config::Log& config, const Ledger::Start& start) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  start_ = start;
  keeps_tensorboard_ = config.tensorboard;
  const bool has_ledger = path_exists(run_->ledger());
  open_metrics(start.step);
  warn_of_missing_lines(start.step);
  if (!has_ledger && start.step > 0)
    log_warning(run_->ledger().string(), ": the file is missing; goodput counts from step ",
                start.step, " on");
  if (keeps_tensorboard_) open_tensorboard(start.step);
  attempt(ledger_part_, [&] {
    open_ledger(start);
    return true;
  });
  if (ledger_ && ledger_->goodput().restarts > 0) {
    log_info(in_words(ledger_->phases()));
    log_info(in_words(ledger_->goodput()));
  }
  attempt(page_part_, [&] {
    if (page_) page_->begin(start.step, goodput());
    return page_.has_value();
  });
}

void RunLog::stay_at(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  attempt(page_part_, [&] {
    if (page_) page_->begin(step, std::nullopt);
    return page_.has_value();
  });
}

std::optional<Goodput> RunLog::goodput() const {
  return ledger_ ? std::optional(ledger_->goodput()) : std::nullopt;
}

void RunLog::append(const StepReport& report) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  if (metrics_ && !metrics_->is_named()) run_->check();  // another start may have renewed it
  const auto append_to = [&](auto& log, Part& part) {
    const auto act = [&] {
      if (log) log->append(report);
      return log.has_value();
    };
    attempt(part, act, report.step);
  };
  append_to(metrics_, metrics_part_);
  append_to(tensorboard_, tensorboard_part_);
  attempt(ledger_part_, [&] { return ledger_ && ledger_->append(report); });
  attempt(page_part_, [&] { return page_ && page_->show(report, goodput()); });
}

void RunLog::count_save(std::int64_t step, bool failed, const std::string& copied_to) {
  const std::lock_guard lock(mutex_);
  if (page_) page_->count_save(step, failed, copied_to);
}

void RunLog::reopen_lost(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  const auto reopen = [&](auto& log, Part& part, const auto& open) {
    try {
      if (log && log->is_named()) return;
      run_->check();
      if (log)
        log_own_warning(run_->path().string(), ": ", part.name,
                        " was removed, moved or replaced. It is opened again; lines written since "
                        "then are lost. To rotate a log, copy it");
      open();
    } catch (const DataError& error) {
      if (!std::exchange(part.failed, true)) warn(error);
    }
  };
  reopen(metrics_, metrics_part_, [&] { open_metrics(step); });
  if (keeps_tensorboard_) reopen(tensorboard_, tensorboard_part_, [&] { open_tensorboard(step); });
  Ledger::Start start = start_;
  start.began = std::chrono::steady_clock::now();
  start.step = step;
  start.restart = {};
  start.starting = {};
  reopen(ledger_, ledger_part_, [&] { open_ledger(start); });
}

bool RunLog::is_taken_over() const {
  try {
    if (run_ != nullptr) run_->check_epoch();
    return false;
  } catch (const TransientError&) {
    return true;
  } catch (const DataError&) {  // unknown; the next writes report the cause
    return false;
  }
}

void RunLog::end(int exit_code, const std::string& why, double checkpoint_seconds) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  if (is_taken_over()) {
    ended_ = is_over_ = true;
    return;
  }
  end_now(exit_code, why, checkpoint_seconds);
  if (ledger_) log_info(in_words(ledger_->goodput()));
}

// Does not sync, because a hanging disk may be the cause.
void RunLog::cut_off(int exit_code, const std::string& why) {
  const std::lock_guard lock(mutex_);
  end_now(exit_code, why, 0);
  is_over_ = true;
}

// Errors here do not change the run's exit code.
void RunLog::end_now(int exit_code, const std::string& why, double checkpoint_seconds) try {
  ended_ = true;
  attempt(ledger_part_, [&] {
    if (ledger_) ledger_->end(exit_code, why, checkpoint_seconds);
    return ledger_.has_value();
  });
  attempt(page_part_, [&] {
    if (page_) page_->end(goodput(), checkpoint_seconds);
    return page_.has_value();
  });
} catch (const std::exception& error) {
  warn(error);
}

void RunLog::sync() {
  const auto attempt_to = [&](auto& log) {
    try {
      if (log) log->sync();
      return true;
    } catch (const DataError& error) {
      if (!sync_failed_.exchange(true)) warn(error);
      return false;
    }
  };
  const bool metrics = attempt_to(metrics_), events = attempt_to(tensorboard_);
  if (attempt_to(ledger_) && metrics && events) sync_failed_ = false;
}

void RunLog::attempt(FunctionRef<void()> act) {
  try {
    act();
  } catch (const DataError& error) {
    warn(error);
  }
}

void RunLog::attempt(Part& part, FunctionRef<bool()> act, std::int64_t step) {
  try {
    if (!act() || !std::exchange(part.failed, false)) return;
    const auto first = std::exchange(part.first_missing, 0);
    log_info(part.name, " is written again",
             first > 0 ? str("; lines of steps ", first, " to ", part.last_missing, " are missing")
                       : "");
  } catch (const DataError& error) {
    if (part.first_missing == 0) part.first_missing = step;
    part.last_missing = step;
    if (!std::exchange(part.failed, true)) warn(error);
  }
}

}  // namespace lockstep
