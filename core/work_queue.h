// WorkQueue: a thread that does what it is given, in order: a queued stream of the CPU.
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
  static constexpr std::int64_t kSlots = 256;  // who gives more waits

  // Work gets a stream of `threads` threads, the queue's own included.
  WorkQueue(const char* name, int threads);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue();  // behind all work

  // Takes a copy of the `bytes` of `work`. One thread gives work.
  void give(Call call, const void* work, std::size_t bytes);

  std::int64_t given() const { return given_; }  // the ticket of the last work given, from 1
  // Until the work of this ticket, and all before it, is done. Throws the error of the first work
  // that failed, where that is not behind it: no work was done since.
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
  std::int64_t failed_ = 0;  // ticket, where there is an error
  std::thread thread_;
};

}  // namespace lockstep
