// What an act writes to standard output and to standard error.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <regex>
#include <string>

namespace lockstep::testing {

inline std::string stdout_of(const std::function<void()>& act) {
  ::testing::internal::CaptureStdout();
  act();
  return ::testing::internal::GetCapturedStdout();
}

// Lines of the log are without their clock, so that they read the same at any time.
inline std::string stderr_of(const std::function<void()>& act) {
  ::testing::internal::CaptureStderr();
  act();
  static const std::regex clock("(^|\n)[0-9]{2}:[0-9]{2}:[0-9]{2} ");
  return std::regex_replace(::testing::internal::GetCapturedStderr(), clock, "$1");
}

}  // namespace lockstep::testing
