#include "checkpoint/background_save.h"

#include <utility>

namespace lockstep {

BackgroundSave::BackgroundSave(Checkpointer& checkpointer, World& world)
    : checkpointer_(checkpointer), world_(world), thread_([this] { run(); }) {}

BackgroundSave::~BackgroundSave() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundSave::begin(Save save) {
  {
    const std::lock_guard lock(mutex_);
    LOCKSTEP_CHECK(state_ == State::idle, "step ", save.step, " is to be saved while step ",
                   next_.step, " is, or nobody was told how that ended");
    next_ = std::move(save);
    begun_ = std::chrono::steady_clock::now();
    state_ = State::writing;
  }
  changed_.notify_all();
}

std::optional<BackgroundSave::Outcome> BackgroundSave::poll() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::ended) return std::nullopt;
  state_ = State::idle;
  return std::exchange(outcome_, {});
}

// All ranks have begun the same: first each has its own file to write, then rank 0 to commit.
std::optional<BackgroundSave::Outcome> BackgroundSave::wait() {
  wait_until_not(State::writing);
  world_.exchange("");
  if (world_.rank() == 0) wait_until_not(State::committing);
  world_.exchange("");
  wait_until_not(State::committing);
  return poll();
}

void BackgroundSave::wait_until_not(State state) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != state; });
}

void BackgroundSave::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return leaving_ || state_ == State::writing; });
    if (state_ != State::writing) return;
    lock.unlock();
    Outcome outcome{.step = next_.step, .seconds = 0, .error = nullptr};
    try {
      save(next_);
    } catch (...) {
      outcome.error = std::current_exception();
    }
    lock.lock();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
    outcome.seconds = took.count();
    outcome_ = std::move(outcome);
    next_.copied = Event();  // its stream may go first
    state_ = State::ended;
    changed_.notify_all();
  }
}

void BackgroundSave::save(Save& save) {
  save.copied.synchronize();
  save.first();
  checkpointer_.save(save.step, save.about, save.keep, [&] {
    const std::lock_guard lock(mutex_);
    state_ = State::committing;
    changed_.notify_all();
  });
}

}  // namespace lockstep
