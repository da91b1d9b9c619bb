// For tests of dist/job: the control server of a job on this host, its ranks as threads or as
// processes, and ways to wait for events.
#pragma once

#include <csignal>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/descriptor.h"
#include "dist/job/control.h"
#include "dist/job/control_server.h"

namespace lockstep::testing {

// A hundred times faster than in production, with a reserve for a host under load.
inline const Timing kFast{.interval = Milliseconds(20), .missed = 50, .stall = Milliseconds(600)};

struct Job {
  explicit Job(int count, const Timing& watched = kFast,
               Milliseconds start_time = Milliseconds(20'000))
      : ranks(count), timing(watched), start(start_time) {}

  ControlServerOptions options() const {
    ControlServerOptions server{.ranks = ranks, .secret = secret};
    server.address = "127.0.0.1";
    server.start = start;
    server.timing = timing;
    return server;
  }
  Membership membership(int rank, std::uint16_t port) const {
    return {rank, ranks, {"127.0.0.1"}, port, secret, start};
  }

  int ranks;
  Timing timing;
  Milliseconds start;
  Secret secret = Secret::draw();
};

// ReservedPort binds a port of this host during its lifetime, so that no other process takes it. It
// does not listen.
class ReservedPort {
 public:
  ReservedPort() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(descriptor_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    LOCKSTEP_CHECK(bind(descriptor_.number(), any, size) == 0 &&
                       getsockname(descriptor_.number(), any, &size) == 0,
                   "cannot bind a port");
    number_ = ntohs(address.sin_port);
  }
  std::uint16_t number() const { return number_; }

 private:
  Descriptor descriptor_;
  std::uint16_t number_ = 0;
};

inline std::vector<std::unique_ptr<Control>> connect_all(const Job& job, std::uint16_t port) {
  std::vector<std::unique_ptr<Control>> controls(static_cast<std::size_t>(job.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.ranks; ++rank)
    threads.emplace_back([&, rank] {
      controls[static_cast<std::size_t>(rank)] =
          std::make_unique<Control>(job.membership(rank, port));
    });
  for (auto& thread : threads)
    thread.join();
  return controls;
}

// Calls body(control) on each rank, each in its own thread. Returns the errors by rank, "" for
// none.
inline std::vector<std::string> run_ranks(const Job& job,
                                          const std::function<void(Control&)>& body) {
  ControlServer server(job.options());
  std::vector<std::string> thrown(static_cast<std::size_t>(job.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Control control(job.membership(rank, server.port()));
        body(control);
      } catch (const Error& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads)
    thread.join();
  return thrown;
}

// Doing holds the activity of a rank, which a test sets and its heartbeat reads.
class Doing {
 public:
  void report(const Activity& activity) {
    const std::lock_guard lock(mutex_);
    activity_ = activity;
  }
  Activity operator()() {
    const std::lock_guard lock(mutex_);
    return activity_;
  }

 private:
  std::mutex mutex_;
  Activity activity_{};
};

inline bool eventually(const std::function<bool()>& condition,
                       Milliseconds timeout = Milliseconds(10'000)) {
  const auto deadline = Clock::now() + timeout;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(Milliseconds(2));
  }
  return true;
}

// Processes starts child processes. Its destructor kills those that still run.
class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      if (status_[i]) continue;
      kill(pids_[i], SIGKILL);
      waitpid(pids_[i], nullptr, 0);
    }
  }

  // Runs body() in a new process, which exits with its result, or with 70 if it throws.
  void start(const std::function<int()>& body) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      int status = 70;
      try {
        status = body();
      } catch (const std::exception& error) {
        [[maybe_unused]] const auto written =
            write(STDERR_FILENO, error.what(), strlen(error.what()));
      }
      _exit(status);
    }
    pids_.push_back(pid);
    status_.emplace_back();
  }
  pid_t pid(int i) const { return pids_.at(static_cast<std::size_t>(i)); }
  void signal(int i, int number) const { kill(pid(i), number); }

  // The exit code, or 128 + signal; nullopt while the process runs.
  std::optional<int> ended(int i) {
    auto& status = status_.at(static_cast<std::size_t>(i));
    int raw = 0;
    if (!status && waitpid(pid(i), &raw, WNOHANG) == pid(i))
      status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    return status;
  }
  bool all_ended(const std::vector<int>& which) {
    bool all = true;
    for (const int i : which)
      all &= ended(i).has_value();
    return all;
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<std::optional<int>> status_;
};

}  // namespace lockstep::testing
