// The wording of messages: one golden file for each reader, tests/FOLDER/wording/READER.txt. It
// holds one line `NAME => MESSAGE` for each message, sorted. A test itself pins keys, numbers,
// places and the type of the error, which is its exit code. After a change of wording, run the
// tests with LOCKSTEP_WORDING=write and read the difference.
#pragma once

#include <initializer_list>
#include <string>

#include "tests/files.h"

namespace lockstep::testing {

// Whether golden files are to be written: LOCKSTEP_WORDING=write.
bool is_writing_wording();

// `text` is the message NAME of `reader`, such as "data/manifest". Temporary directories read as
// DIR, ports of this machine as PORT.
void expect_wording(const std::string& reader, const std::string& name, const std::string& text);

// `act` throws an E; its message holds each of `pins`, and is the message NAME of `reader`.
template <class E, class Act>
void expect_refusal(const std::string& reader, const std::string& name,
                    std::initializer_list<std::string> pins, const Act& act) {
  SCOPED_TRACE(name);
  const auto text = message_of<E>(act);
  for (const auto& pin : pins)
    expect_contains(text, pin);
  expect_wording(reader, name, text);
}

}  // namespace lockstep::testing
