#include "core/work_queue.h"

#include <cstring>
#include <optional>

#include "core/start_thread.h"
#include "core/thread_pool.h"

namespace lockstep {

WorkQueue::WorkQueue(const char* name, int threads)
    : thread_(start_thread([this, name, threads] { serve(name, threads); })) {}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  was_given_.notify_one();
  thread_.join();
}

void WorkQueue::give(Call call, const void* work, std::size_t bytes) {
  {
    std::unique_lock lock(mutex_);
    was_done_.wait(lock, [&] { return given_ - done_ < kSlots; });
    Slot& slot = slots_[static_cast<std::size_t>(given_ % kSlots)];
    slot.call = call;
    std::memcpy(slot.work.data(), work, bytes);
    ++given_;
  }
  was_given_.notify_one();
}

void WorkQueue::wait(std::int64_t ticket) {
  std::unique_lock lock(mutex_);
  was_done_.wait(lock, [&] { return done_ >= ticket; });
  if (error_ && ticket >= failed_) std::rethrow_exception(error_);
}

bool WorkQueue::is_done(std::int64_t ticket) {
  const std::lock_guard lock(mutex_);
  return done_ >= ticket;
}

// Creates the stream in this thread, because a stream sets the thread's denormal mode and CPUs. If
// that fails, all work fails with the same error.
void WorkQueue::serve(const char* name, int threads) {
  use_all_processors();
  std::optional<Stream> stream;
  std::exception_ptr no_stream;
  try {
    stream.emplace(Device{}, name, Stream::Mode::immediate, threads);
  } catch (...) {
    no_stream = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  error_ = no_stream;
  for (;;) {
    was_given_.wait(lock, [&] { return stopping_ || done_ < given_; });
    if (done_ == given_) return;
    const Slot& slot = slots_[static_cast<std::size_t>(done_ % kSlots)];
    if (!error_) {
      lock.unlock();
      std::exception_ptr error;
      try {
        slot.call(slot.work.data(), *stream);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) {
        error_ = error;
        failed_ = done_ + 1;
      }
    }
    ++done_;
    was_done_.notify_all();
  }
}

}  // namespace lockstep
