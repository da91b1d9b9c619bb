// Wall clock is the time of day, comparable with other hosts. It may be changed at any time, so
// durations use std::chrono::steady_clock.
#pragma once

#include <chrono>

namespace lockstep {

inline double seconds_since_1970() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
