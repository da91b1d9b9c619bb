// Output writes results to standard output. A failed write is an error.
#pragma once

#include <string_view>

#include "core/error.h"

namespace lockstep {

// Standard output cannot be written: full disk, or closed pipe. The message names no input file.
class OutputError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 74; }
};

// Both throw OutputError with the reason.
void write_output(std::string_view text);  // writes and flushes
void flush_output();                       // flushes earlier writes to std::cout

}  // namespace lockstep
