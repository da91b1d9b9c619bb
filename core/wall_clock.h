// The time of day, which people and other machines know too, and somebody may set: what took how
// long is measured by std::chrono::steady_clock.
#pragma once

#include <chrono>

namespace lockstep {

inline double seconds_since_1970() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
