// Checks the log lines of a call, and their wording.
#pragma once

#include "tests/captured.h"
#include "tests/wording.h"

namespace lockstep::testing {

// `act` logs each of `pins`; its whole log is the message NAME of `reader`.
template <class Act>
void expect_log(const std::string& reader, const std::string& name,
                std::initializer_list<std::string> pins, const Act& act) {
  SCOPED_TRACE(name);
  const auto text = stderr_of(act);
  for (const auto& pin : pins)
    expect_contains(text, pin);
  expect_wording(reader, name, text);
}

}  // namespace lockstep::testing
