// The only place that catches: it says what stopped the program, and exits with a code that says
// whose fault that was (core/error.h).
#include <csignal>
#include <exception>
#include <iostream>
#include <malloc.h>
#include <new>
#include <sys/resource.h>

#include "core/error.h"
#include "core/output.h"
#include "launch/command_line.h"

namespace {

// `ulimit -v`, in bytes; RLIM_INFINITY: none.
rlim_t limit_of_addresses() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

int main(int argc, char** argv) {
  // glibc reserves 64 MiB of addresses for the heap of each new thread, if it can. Under a limit a
  // run would then start with more threads' heaps, and fail at its first save.
  if (limit_of_addresses() != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
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
    const auto limit = limit_of_addresses();
    if (limit == RLIM_INFINITY) {
      std::cerr << "\n";
      return 1;
    }
    std::cerr << "; `ulimit -v` limits the addresses of this process to " << limit / 1024
              << " KiB. Raise it, or make the model or the batch smaller\n";
    return lockstep::ConfigError("").exit_code();
  } catch (const std::exception& e) {
    std::cerr << "lockstep: " << e.what() << "\n";
    return 1;
  }
}
