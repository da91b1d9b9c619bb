// The wording of messages that name this host, its processes and its ports.
#pragma once

#include <regex>
#include <string>

#include "core/system/machine.h"
#include "tests/wording.h"

namespace lockstep::testing {

// Replaces the host, process ids and ports, which differ in each run, by HOST, PID and PORT.
inline std::string on_any_machine(std::string text) {
  static const std::regex pid("pid [0-9]+"), port(R"((127\.0\.0\.1|\]):[0-9]+)");
  const auto host = "host " + host_name(), any = std::string("host HOST");
  for (std::size_t at = 0; (at = text.find(host, at)) != text.npos; at += any.size())
    text.replace(at, host.size(), any);
  return std::regex_replace(std::regex_replace(text, pid, "pid PID"), port, "$1:PORT");
}

inline void expect_words(const std::string& reader, const std::string& name,
                         const std::string& text, std::initializer_list<std::string> pins = {}) {
  SCOPED_TRACE(name);
  for (const auto& pin : pins)
    expect_contains(text, pin);
  expect_wording(reader, name, on_any_machine(text));
}

// Like expect_refusal() of tests/wording.h, for a message that names this host.
template <class E, class Act>
void expect_refusal_here(const std::string& reader, const std::string& name,
                         std::initializer_list<std::string> pins, const Act& act) {
  expect_words(reader, name, message_of<E>(act), pins);
}

}  // namespace lockstep::testing
