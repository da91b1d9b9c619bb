// BackgroundTask: one thing at a time is done by another thread.
#pragma once

#include <future>
#include <utility>

#include "core/start_thread.h"

namespace lockstep {

class BackgroundTask {
 public:
  // Waits for the one before it. Both throw what that one threw.
  template <class Act>
  void run(Act act) {
    wait();
    running_ = start_task(std::move(act));
  }
  void wait() {
    if (running_.valid()) running_.get();
  }

 private:
  std::future<void> running_;  // whose destructor waits
};

}  // namespace lockstep
