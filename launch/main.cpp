// The only place that catches: it says what stopped the program, and exits with a code that says
// whose fault that was (core/error.h).
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <sys/resource.h>

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
    std::cerr << "lockstep: out of memory";
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
      std::cerr << "\n";
      return 1;
    }
    std::cerr << "; `ulimit -v` limits the addresses of this process to " << limit.rlim_cur / 1024
              << " KiB. Raise it, or make the model or the batch smaller\n";
    return lockstep::ConfigError("").exit_code();
  } catch (const std::exception& e) {
    std::cerr << "lockstep: " << e.what() << "\n";
    return 1;
  }
}
