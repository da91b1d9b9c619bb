#include "train/run/signals.h"

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace lockstep::signals_test {

using namespace std::chrono_literals;

// Resets the signals, because nohup ignores SIGHUP and some launchers ignore SIGPIPE.
class Signals : public ::testing::Test {
 protected:
  Signals() {
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGPIPE})
      std::signal(signal, SIG_DFL);
  }
};

TEST_F(Signals, each_signal_has_its_exit_code_and_before_it_there_is_none) {
  for (const auto& [signal, code] :
       {std::pair{SIGINT, 130}, {SIGTERM, 75}, {SIGUSR1, 75}, {SIGHUP, 75}}) {
    const StopSignals signals;
    EXPECT_FALSE(signals.exit_code());
    std::raise(signal);
    EXPECT_EQ(signals.exit_code(), code);
  }
}

// The exit code of a child that gets `first`, then after a pause `second`, and then exits.
int exit_after(int first, std::chrono::milliseconds pause, int second) {
  const pid_t child = fork();
  if (child == 0) {
    const StopSignals signals;
    std::raise(first);
    std::this_thread::sleep_for(pause);
    std::raise(second);
    _exit(signals.exit_code().value_or(1));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Signals, the_same_signal_again_ends_the_process_at_once) {
  EXPECT_EQ(exit_after(SIGINT, 150ms, SIGINT), 128 + SIGINT);
  EXPECT_EQ(exit_after(SIGTERM, 150ms, SIGTERM), 128 + SIGTERM);
}

TEST_F(Signals, different_signals_are_one_request) {
  EXPECT_EQ(exit_after(SIGTERM, 150ms, SIGUSR1), 75);
  EXPECT_EQ(exit_after(SIGUSR1, 150ms, SIGTERM), 75);
  EXPECT_EQ(exit_after(SIGINT, 150ms, SIGTERM), 130);
}

TEST_F(Signals, a_signal_that_is_delivered_twice_is_one_request) {
  EXPECT_EQ(exit_after(SIGTERM, 0ms, SIGTERM), 75);
}

TEST_F(Signals, repeated_hangups_are_one_request) {
  EXPECT_EQ(exit_after(SIGHUP, 150ms, SIGHUP), 75);
}

TEST_F(Signals, a_closed_pipe_and_a_hangup_under_nohup_are_ignored) {
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals;
    std::raise(SIGPIPE);
    std::raise(SIGHUP);
    EXPECT_FALSE(signals.exit_code());
  }
  std::signal(SIGHUP, SIG_DFL);
}

TEST_F(Signals, earlier_handlers_are_restored) {
  { const StopSignals signals; }
  for (const int signal : {SIGUSR1, SIGPIPE, SIGHUP}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << signal;
  }
}

}  // namespace lockstep::signals_test
