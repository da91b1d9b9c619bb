// The only place that catches: it says what stopped the program, and exits with a code that says
// whose fault that was (core/error.h).
#include <csignal>
#include <exception>
#include <iostream>
#include <new>

#include "core/error.h"
#include "launch/command_line.h"
#include "launch/output.h"

int main(int argc, char** argv) {
  // A write beyond the limit of file sizes (ulimit -f) fails with EFBIG then, and names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = lockstep::run_command_line({argv + 1, argv + argc});
    lockstep::flush_output();
    return code;
  } catch (const lockstep::Error& e) {
    std::cerr << "lockstep: " << e.what() << "\n";
    return e.exit_code();
  } catch (const std::bad_alloc&) {
    std::cerr << "lockstep: out of memory\n";
    return 1;
  } catch (const std::exception& e) {
    std::cerr << "lockstep: " << e.what() << "\n";
    return 1;
  }
}
