#include "train/run/live_requests.h"

#include <algorithm>
#include <chrono>

#include "checkpoint/all_ranks.h"
#include "checkpoint/directory.h"
#include "core/file.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/start_thread.h"

namespace lockstep {
namespace {

Rollback rollback_of(const Request& request) {
  return {.step = request.step,
          .skip = request.skip.empty() ? std::nullopt
                                       : std::optional(StepRange::parse(request.skip, "--skip")),
          .number = request.number};
}

// The request that rank 0 broadcasts.
Request request_of(const Json& json) {
  Request request{.number = json.at("number").as_integer(),
                  .command = json.at("command").as_string(),
                  .step = json.at("step").as_integer(),
                  .skip = json.at("skip").as_string()};
  for (const auto& setting : json.at("settings").as_array())
    request.settings.push_back(setting.as_string());
  return request;
}

// "1, 2, 3"
std::string list_of(const std::vector<std::int64_t>& steps) {
  std::string text;
  for (const auto step : steps)
    text += str(text.empty() ? "" : ", ", step);
  return text.empty() ? "none" : text;
}

}  // namespace

LiveRequests::LiveRequests(Run& run) : run_(run), directory_(run.host.directory.path()) {}

LiveRequests::~LiveRequests() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  wakes_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::int64_t LiveRequests::epoch() const {
  const auto& epoch = run_.host.directory.epoch();
  return epoch ? epoch->number() : 0;
}

void LiveRequests::open() {
  if (!run_.host.options.resolve) return;  // a caller without configuration files
  step_ = run_.step();
  const auto& amendments = run_.position.progress.amendments;
  run_.host.log.attempt([&] {
    make_directories(directory_.path());
    for (const auto number : directory_.unanswered()) {
      const auto of_request = [&](const Amendment& one) {
        return request_number(one.request) == number;
      };
      const auto amendment = std::ranges::find_if(amendments, of_request);
      const bool is_done = amendment != amendments.end();
      const bool is_new = run_.host.options.continues || directory_.is_of_this_start(number);
      if (!is_done && is_new) continue;
      Request request{.number = number, .command = "unknown"};
      try {
        request = directory_.read(number);
      } catch (const DataError&) {  // it is refused all the same
      }
      if (is_for_supervisor(request)) continue;
      directory_.answer(
          request,
          is_done ? RequestAnswer{RequestState::done,
                                  request.command == "rollback"
                                      ? str("the run went back to step ", amendment->at_step)
                                      : str("in effect after step ", amendment->at_step),
                                  amendment->at_step}
                  : RequestAnswer{RequestState::refused,
                                  "it was sent to an earlier start of the run; send it again",
                                  run_.step()},
          epoch());
      last_ = number;
    }
    for (const auto& one : amendments)
      last_ = std::max(last_, request_number(one.request));
    directory_.begin_after(last_);  // the directory may be new
  });
  thread_ = start_thread([this] { look_each_second(); });
}

void LiveRequests::close(bool begins_again) {
  if (!thread_.joinable()) return;
  if (!begins_again && run_.position.offered != 0)
    finish(RequestState::done, current_.command == "stop"
                                   ? str("saved step ", run_.step(), "; the run ends")
                                   : str("the run ends after step ", run_.step()));
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  wakes_.notify_all();
  thread_.join();
  run_.host.log.attempt([&] {
    write_answers();
    if (begins_again) return;
    for (const auto number : directory_.unanswered())
      if (number > last_)
        directory_.answer({.number = number, .command = "unknown"},
                          {RequestState::refused, "the run has ended", run_.step()}, epoch());
  });
}

bool LiveRequests::is_for_supervisor(const Request& request) const {
  return request.command == "drain" && directory_.has_supervisor();
}

void LiveRequests::look_each_second() {
  constexpr auto kBetween = std::chrono::seconds(1);
  std::unique_lock lock(mutex_);
  while (!wakes_.wait_for(lock, kBetween, [&] { return is_closing_; })) {
    lock.unlock();
    try {
      run_.host.directory.check_epoch();
      write_answers();
      look();
      has_warned_ = false;
    } catch (const TransientError&) {  // another start has taken over; training ends, too
      return;
    } catch (const Error& error) {  // requests wait until the file system works again
      if (!std::exchange(has_warned_, true))
        log_own_warning(error.what(), "; training continues, but takes no requests of `ctl`");
    }
    lock.lock();
  }
}

void LiveRequests::look() {
  for (const auto number : directory_.unanswered()) {
    if (run_.position.offered != 0) return;
    {
      const std::lock_guard lock(mutex_);
      if (answers_.contains(number)) continue;
    }
    Request request{.number = number, .command = "unknown"};
    try {
      request = directory_.read(number);
      if (is_for_supervisor(request)) continue;
      if (number <= last_) throw DataError(str("out of order: expected a number above ", last_));
      consider(request);
    } catch (const StorageError&) {  // try again
      throw;
    } catch (const Error& error) {
      directory_.answer(request, {RequestState::refused, error.what(), step_}, epoch());
    }
    last_ = std::max(last_, number);
  }
}

// Answers a request that needs no act, and offers another one to the ranks.
void LiveRequests::consider(const Request& request) {
  const auto words = checked(request);
  if (request.is_dry_run) {
    directory_.answer(request, {RequestState::done, "would be accepted: " + words, step_}, epoch());
    return;
  }
  current_ = request;
  run_.position.offered = request.number;
}

// Throws an Error with the reason if the request is refused.
std::string LiveRequests::checked(const Request& request) const {
  const std::int64_t step = step_;
  const auto& command = request.command;
  if (command == "rollback") return checked_rollback(request);
  if (command == "set") return checked_change(request);
  if (command == "drain")
    throw ConfigError(str("no supervisor takes requests of this run; to leave out ", request.target,
                          ", send `stop`, then start the run again without that host"));
  if (command == "pause" && is_paused_) throw ConfigError("the run is paused already");
  if (command == "resume" && !is_paused_) throw ConfigError("the run is not paused");
  if (command == "release") {
    const auto kept = kept_steps(run_.position.progress.amendments);
    if (std::ranges::find(kept, request.step) == kept.end())
      throw ConfigError(str("no checkpoint of step ", request.step,
                            " is kept by `save`; kept steps: ", list_of(kept)));
    return str("retention may delete step ", request.step);
  }
  return str("the run is at step ", step);
}

std::string LiveRequests::checked_rollback(const Request& request) const {
  const auto rollback = rollback_of(request);
  const std::int64_t step = step_;
  if (rollback.step < 1 || rollback.step > step || run_.checkpoints.find(rollback.step).empty())
    throw ConfigError(str("no checkpoint of step ", rollback.step, "; choose one of steps ",
                          list_of(checkpoint_steps(run_.host.directory.checkpoints()))));
  if (const auto& skip = rollback.skip) {
    if (skip->first <= rollback.step || skip->first > run_.steps())
      throw ConfigError(str("--skip ", request.skip, ": expected steps after ", rollback.step,
                            " and up to ", run_.steps()));
    for (const auto& phase :
         run_.host.options.resolve(changes_of(run_.position.progress.amendments)))
      if (skip->first <= phase.from_step && phase.from_step < skip->last)
        throw ConfigError(str("--skip ", request.skip, ": other settings begin after step ",
                              phase.from_step, "; choose a range up to it or after it"));
  }
  return str("goes back from step ", step, " to step ", rollback.step,
             "; the later checkpoints and metrics are renamed");
}

std::string LiveRequests::checked_change(const Request& request) const {
  const std::int64_t step = step_, at = request.step > 0 ? request.step : step;
  if (at < step) throw ConfigError(str("--at ", at, ": the run is at step ", step, " already"));
  if (at >= run_.steps())
    throw ConfigError(str("--at ", at, ": the run has only ", run_.steps(), " steps"));
  const auto all = run_.position.progress.amendments;
  auto changed = changes_of(all);
  changed.push_back(
      amendment_of(request.number, "set", std::max<std::int64_t>(at, 1), request.settings));
  const auto phases = run_.host.options.resolve(changed);
  if (const auto steps = phases.front().config.train.steps; steps != run_.steps())
    throw ConfigError(str("the run would have ", steps, " steps instead of ", run_.steps(),
                          ", because train.tokens sets its length"));
  return str("in effect after step ", at, "; the run saves, and begins again in the same process");
}

void LiveRequests::write_answers() {
  for (;;) {
    std::pair<Request, RequestAnswer> first;
    {
      const std::lock_guard lock(mutex_);
      if (answers_.empty()) return;
      first = answers_.begin()->second;
    }
    directory_.answer(first.first, first.second, epoch());
    const std::lock_guard lock(mutex_);
    answers_.erase(first.first.number);
  }
}

// The thread writes the answer, and tries again if it cannot be written.
void LiveRequests::finish(RequestState state, const std::string& message, std::int64_t step) {
  if (!run_.host.is_first()) return;
  const std::lock_guard lock(mutex_);
  answers_.insert_or_assign(current_.number,
                            std::pair{current_, RequestAnswer{state, message, step}});
  run_.position.offered = 0;
}

void LiveRequests::take() {
  step_ = run_.step();
  auto& position = run_.position;
  if (position.request <= position.taken) return;
  position.taken = position.request;
  const AllRanks ranks(&run_.host.world, "request");
  const Json told =
      Json::parse(ranks.told(run_.host.is_first() ? begin_act().dump() : ""), "rank 0");
  if (told.is_null()) return;
  const Request request = request_of(told);
  log_info("request ", request.number, " after step ", run_.step(), ": ", in_words(request));
  act(request);
}

// At rank 0: what is to be done is on the disk before any rank acts. Returns null if it is refused.
Json LiveRequests::begin_act() {
  try {
    if (current_.command == "set" && current_.step == 0) current_.step = run_.step();
    checked(current_);  // again, because steps passed
    const auto& amendments = run_.position.progress.amendments;
    AmendmentFile file{amendments, ""};
    if (current_.command == "set") {
      file.amendments.push_back(
          amendment_of(current_.number, "set", current_.step, current_.settings));
      file.unfinished = file.amendments.back().request;
    }
    if (current_.command == "rollback") file.unfinished = rollback_of(current_).request();
    run_.host.directory.check();
    directory_.record(current_, {RequestState::taken, "", run_.step()}, epoch());
    if (!file.unfinished.empty()) file.write(run_.host.directory.amendments());
    return to_json(current_);
  } catch (const TransientError&) {  // another start has taken over
    throw;
  } catch (const Error& error) {
    finish(RequestState::refused, error.what());
    return {};
  }
}

void LiveRequests::act(const Request& request) {
  auto& amendments = run_.position.progress.amendments;
  const auto& command = request.command;
  if (command == "save") save_ = Save::asked;
  if (command == "stop" && run_.position.stop == 0) run_.position.stop = kStoppedByUser;
  if (command == "rollback") next_ = Next::rollback;
  if (command == "set") {
    next_ = Next::change;
    amendments.push_back(amendment_of(request.number, "set", request.step, request.settings));
  }
  if (command == "release") {
    amendments.push_back(amendment_of(request.number, "release", request.step));
    finish(RequestState::done, str("step ", request.step, " is no longer kept"));
  }
  if (command == "pause" || command == "resume") {
    is_paused_ = command == "pause";
    finish(RequestState::done,
           str(is_paused_ ? "paused after step " : "training continues after step ", run_.step()));
  }
}

void LiveRequests::wait_paused() {
  constexpr auto kTurn = std::chrono::milliseconds(300);
  std::this_thread::sleep_for(kTurn);
  made_progress();  // a pause is no stall
  run_.position.agreed(run_.host.agreed(run_.position.signal(run_.host.signals)));
  take();
}

void LiveRequests::save_begins() {
  if (save_ != Save::asked) return;
  save_ = Save::running;
  save_step_ = run_.step();
  run_.position.progress.amendments.push_back(
      amendment_of(run_.position.taken, "save", save_step_));
}

void LiveRequests::note_saves(std::int64_t ended_step) {
  const bool is_saved = run_.position.saved_step >= save_step_;
  if (save_ != Save::running || (!is_saved && ended_step < save_step_)) return;
  save_ = Save::none;
  if (is_saved)
    finish(RequestState::done,
           str("saved step ", save_step_, "; it is kept until `release ", save_step_, "`"),
           save_step_);
  else
    finish(RequestState::failed, str("step ", save_step_, " could not be saved; see the log"),
           save_step_);
}

std::string drop_unfinished_request(const RunDirectory& run, const std::string& why) {
  auto file = AmendmentFile::read(run.amendments());
  if (!file || request_number(file->unfinished) == 0) return "";
  const auto words = std::exchange(file->unfinished, "");
  std::erase_if(file->amendments, [&](const Amendment& one) { return one.request == words; });
  run.check();
  file->write(run.amendments());
  const ControlDirectory directory(run.path());
  const auto number = request_number(words);
  const auto unanswered = directory.unanswered();
  if (std::ranges::find(unanswered, number) != unanswered.end())
    directory.answer(directory.read(number), {RequestState::failed, why},
                     run.epoch() ? run.epoch()->number() : 0);
  return words;
}

}  // namespace lockstep
