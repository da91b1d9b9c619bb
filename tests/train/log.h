// What a call logs, and its wording.
#pragma once

#include <regex>

#include "tests/wording.h"

namespace lockstep::testing {

// The lines that `act` logs, without their times of day.
template <class Act>
std::string log_of(const Act& act) {
  ::testing::internal::CaptureStderr();
  act();
  static const std::regex time("(^|\n)[0-9]{2}:[0-9]{2}:[0-9]{2} ");
  return std::regex_replace(::testing::internal::GetCapturedStderr(), time, "$1");
}

// `act` logs each of `pins`; all that it logs is the message NAME of `reader`.
template <class Act>
void expect_log(const std::string& reader, const std::string& name,
                std::initializer_list<std::string> pins, const Act& act) {
  SCOPED_TRACE(name);
  const auto text = log_of(act);
  for (const auto& pin : pins)
    expect_contains(text, pin);
  expect_wording(reader, name, text);
}

}  // namespace lockstep::testing
