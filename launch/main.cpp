// The program. main() reports the error that stopped it, and exits with the code of that kind of
// error (core/error.h).
#include <csignal>
#include <exception>
#include <iostream>
#include <malloc.h>
#include <new>
#include <sys/resource.h>

#include "core/error.h"
#include "core/output.h"
#include "dist/job/agent_socket.h"
#include "launch/command_line.h"

namespace {

// The limit of `ulimit -v` in bytes; RLIM_INFINITY: no limit.
rlim_t limit_of_addresses() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

int main(int argc, char** argv) {
  // glibc reserves 64 MiB of addresses for the heap of each new thread if it can. Under a limit a
  // run would then start with many such heaps, and fail at its first save.
  if (limit_of_addresses() != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
  // A write beyond the file size limit (ulimit -f) then fails with EFBIG, and the error names the
  // file.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = lockstep::run_command_line({argv + 1, argv + argc});
    lockstep::flush_output();
    return code;
  } catch (const lockstep::Error& e) {
    lockstep::report_to_agent({.error = e.what()});
    std::cerr << "lockstep: " << e.what() << "\n";
    return e.exit_code();
  } catch (const std::bad_alloc&) {
    lockstep::report_to_agent({.error = "out of memory"});
    std::cerr << "lockstep: out of memory";
    const auto limit = limit_of_addresses();
    if (limit == RLIM_INFINITY) {
      std::cerr << "\n";
      return 1;
    }
    std::cerr << "; `ulimit -v` limits the address space of this process to " << limit / 1024
              << " KiB; raise it, or use a smaller model or batch\n";
    return lockstep::ConfigError("").exit_code();
  } catch (const std::exception& e) {
    lockstep::report_to_agent({.error = e.what()});
    std::cerr << "lockstep: " << e.what() << "\n";
    return 1;
  }
}
