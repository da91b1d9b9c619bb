// start_thread: a std::thread, whose error is a sentence that says what to do.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"

namespace lockstep {

// Throws TransientError where the system starts no more threads.
template <class Act>
std::thread start_thread(Act&& act) {
  try {
    return std::thread(std::forward<Act>(act));
  } catch (const std::system_error& error) {
    throw TransientError(
        str("no thread can be started: ", error.what(),
            "; raise `ulimit -u` or `ulimit -v`, or pids.max of the control group, or "
            "start fewer processes"));
  }
}

}  // namespace lockstep
