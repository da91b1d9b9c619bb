// start_thread and start_task start a std::thread and a std::async. Their error says what to do.
#pragma once

#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"

namespace lockstep {

// `what`: what failed, for example "no thread can be started".
[[noreturn]] inline void fail_to_start_thread(const std::string& what,
                                              const std::system_error& error) {
  throw TransientError(str(what, ": ", error.what(),
                           "; raise `ulimit -u` or `ulimit -v`, or pids.max of the control group, "
                           "or start fewer processes or threads"));
}

// Each throws TransientError where the system starts no more threads.
template <class Act>
std::thread start_thread(Act&& act) {
  try {
    return std::thread(std::forward<Act>(act));
  } catch (const std::system_error& error) {
    fail_to_start_thread("no thread can be started", error);
  }
}
template <class Act>
std::future<void> start_task(Act&& act) {
  try {
    return std::async(std::launch::async, std::forward<Act>(act));
  } catch (const std::system_error& error) {
    fail_to_start_thread("no thread can be started", error);
  }
}

}  // namespace lockstep
