// WorkQueue is a thread that runs enqueued work in order, for a queued CPU stream.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "core/stream.h"

namespace lockstep {

class WorkQueue {
 public:
  using Call = void (*)(const void* work, Stream& stream);
  static constexpr std::int64_t kSlots = 256;  // give() blocks while all slots are used

  // Work gets a stream of `threads` threads, with the queue's own thread.
  WorkQueue(const char* name, int threads);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue();  // waits for all work

  // Enqueues a copy of the `bytes` bytes of `work`. Only one thread may call it.
  void give(Call call, const void* work, std::size_t bytes);

  std::int64_t given() const { return given_; }  // ticket of the last enqueued work, from 1
  // Waits until the work of this ticket, and all before it, is done. Throws the error of the first
  // failed work if it is at or before the ticket; work after a failure is skipped.
  void wait(std::int64_t ticket);
  bool is_done(std::int64_t ticket);

 private:
  struct Slot {
    Call call = nullptr;
    alignas(std::max_align_t) std::array<std::byte, Stream::kMostWorkBytes> work;
  };
  void serve(const char* name, int threads);

  std::mutex mutex_;
  std::condition_variable was_given_, was_done_;
  std::array<Slot, kSlots> slots_;
  std::int64_t given_ = 0, done_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::int64_t failed_ = 0;  // ticket of the failed work, if there is an error
  std::thread thread_;
};

}  // namespace lockstep
