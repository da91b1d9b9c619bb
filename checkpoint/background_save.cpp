#include "checkpoint/background_save.h"

#include <utility>

#include "core/start_thread.h"

namespace lockstep {

BackgroundSave::BackgroundSave(Checkpointer& checkpointer, World& world)
    : checkpointer_(checkpointer), world_(world), thread_(start_thread([this] { run(); })) {}

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
    LOCKSTEP_CHECK(state_ == State::idle, "save of step ", save.step,
                   " begins before the outcome of step ", next_.step, " was read");
    next_ = std::move(save);
    begun_ = std::chrono::steady_clock::now();
    state_ = State::under_way;
    acts_ = 0;
  }
  changed_.notify_all();
}

std::optional<BackgroundSave::Outcome> BackgroundSave::poll() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::ended) return std::nullopt;
  state_ = State::idle;
  return std::exchange(outcome_, {});
}

// All ranks have begun the same save. A rank that is late with an action keeps the others in an
// exchange.
std::optional<BackgroundSave::Outcome> BackgroundSave::wait() {
  for (int act = 1; act <= Checkpointer::kActs; ++act) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return state_ != State::under_way || acts_ >= act; });
    }
    world_.exchange("");
  }
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ != State::under_way; });
  }
  return poll();
}

void BackgroundSave::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return leaving_ || state_ == State::under_way; });
    if (state_ != State::under_way) return;
    lock.unlock();
    Outcome outcome{.step = next_.step, .error = nullptr};
    try {
      next_.copied.synchronize();
      next_.first();
      outcome.bytes = checkpointer_.save(next_.step, next_.about, next_.keep, [&] {
        const std::lock_guard acting(mutex_);
        ++acts_;
        changed_.notify_all();
      });
    } catch (...) {
      outcome.error = std::current_exception();
    }
    lock.lock();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
    outcome.seconds = took.count();
    outcome_ = std::move(outcome);
    next_.copied = Event();  // its stream may be destroyed before this object
    state_ = State::ended;
    changed_.notify_all();
  }
}

}  // namespace lockstep
