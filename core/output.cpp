#include "core/output.h"

#include <cerrno>
#include <iostream>
#include <system_error>

namespace lockstep {
namespace {

// reason: a value of errno; 0 if unknown, because an earlier write failed.
[[noreturn]] void fail(int reason) {
  const auto what = reason == 0 ? "" : str(": ", std::generic_category().message(reason));
  throw OutputError(str("standard output: cannot write", what));
}

}  // namespace

void write_output(std::string_view text) {
  errno = 0;
  if (!(std::cout << text << std::flush)) fail(errno);
}

void flush_output() {
  errno = 0;
  if (!std::cout.flush()) fail(errno);
}

}  // namespace lockstep
