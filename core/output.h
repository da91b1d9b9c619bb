// Standard output, where results go: what cannot be written there is an error, not a silence.
#pragma once

#include <string_view>

#include "core/error.h"

namespace lockstep {

// A full disk, or a pipe that nobody reads. Of no input, so none is named in front of it.
class OutputError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 74; }
};

// Each throws OutputError, saying why.
void write_output(std::string_view text);  // at once
void flush_output();                       // what was written before

}  // namespace lockstep
