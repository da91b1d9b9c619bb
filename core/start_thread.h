// start_thread and start_task start a std::thread and a std::async. Their error has the remedy.
#pragma once

#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"

namespace lockstep {

// `what`: what failed, for example "cannot start a thread".
[[noreturn]] inline void fail_to_start_thread(const std::string& what,
                                              const std::system_error& error) {
  throw TransientError(str(what, ": ", error.what(),
                           "; raise `ulimit -u` or `ulimit -v`, or pids.max of the control group, "
                           "or start fewer processes or threads"));
}

// Both throw TransientError if the system cannot start another thread.
template <class Act>
std::thread start_thread(Act&& act) {
  try {
    return std::thread(std::forward<Act>(act));
  } catch (const std::system_error& error) {
    fail_to_start_thread("cannot start a thread", error);
  }
}
template <class Act>
std::future<void> start_task(Act&& act) {
  try {
    return std::async(std::launch::async, std::forward<Act>(act));
  } catch (const std::system_error& error) {
    fail_to_start_thread("cannot start a thread", error);
  }
}

}  // namespace lockstep
