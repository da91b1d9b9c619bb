// BackgroundTask: one thing at a time is done by another thread.
#pragma once

#include <future>
#include <utility>

namespace lockstep {

class BackgroundTask {
 public:
  // Waits for the one before it. Both throw what that one threw.
  template <class Act>
  void run(Act act) {
    wait();
    running_ = std::async(std::launch::async, std::move(act));
  }
  void wait() {
    if (running_.valid()) running_.get();
  }

 private:
  std::future<void> running_;  // whose destructor waits
};

}  // namespace lockstep
