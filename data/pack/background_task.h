// BackgroundTask runs one task at a time in another thread.
#pragma once

#include <future>
#include <utility>

#include "core/start_thread.h"

namespace lockstep {

class BackgroundTask {
 public:
  // Both functions wait for the previous task and throw its exception.
  template <class Act>
  void run(Act act) {
    wait();
    running_ = start_task(std::move(act));
  }
  void wait() {
    if (running_.valid()) running_.get();
  }

 private:
  std::future<void> running_;  // its destructor waits
};

}  // namespace lockstep
