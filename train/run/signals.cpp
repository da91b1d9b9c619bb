#include "train/run/signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGPIPE};
constexpr std::int64_t kSameRequestNanoseconds = 100'000'000;

// Globals, because a handler cannot return values. They are lock-free, so a handler may use them.
std::atomic<int> first_signal{0};
std::array<std::atomic<std::int64_t>, NSIG> first_nanoseconds;  // of each signal; 0: not received
std::atomic<bool> speaks{true};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::array<struct sigaction, kSignals.size()> handlers_before;
std::atomic<int> alive{0};  // number of StopSignals

std::int64_t nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // async-signal-safe, as write and _exit are
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void say(std::string_view text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

void decide(int signal) {
  const auto now = nanoseconds();
  std::int64_t before = 0;
  if (first_nanoseconds[signal].compare_exchange_strong(before, now)) {
    int none = 0;
    if (first_signal.compare_exchange_strong(none, signal) && speaks)
      say("lockstep: stopping after this step; the same signal again stops at once without "
          "saving\n");
    return;
  }
  if (signal == SIGHUP) return;  // a closing shell sends it, then the kernel does again
  if (now - before < kSameRequestNanoseconds) return;
  say("lockstep: the same signal again: stopped at once without saving\n");
  _exit(128 + signal);
}

void handle(int signal) {
  const int before = errno;  // of the interrupted code
  decide(signal);
  errno = before;
}

}  // namespace

StopSignals::StopSignals(bool says_so) {
  if (alive++ > 0) return;
  speaks = says_so;
  first_signal = 0;
  for (auto& nanoseconds : first_nanoseconds)
    nanoseconds = 0;
  struct sigaction action {};
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    auto& before = handlers_before[i];
    sigaction(kSignals[i], nullptr, &before);
    const bool ignored = kSignals[i] == SIGHUP && before.sa_handler == SIG_IGN;
    action.sa_handler = ignored || kSignals[i] == SIGPIPE ? SIG_IGN : handle;
    sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  if (--alive > 0) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals[i], &handlers_before[i], nullptr);
}

std::optional<int> StopSignals::exit_code() const {
  const int signal = first_signal;
  if (signal == 0) return std::nullopt;
  return signal == SIGINT ? kStoppedByUser : 75;
}

}  // namespace lockstep
