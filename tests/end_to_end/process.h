// Runs the binary as a person does: arguments in, exit code and both outputs back.
#pragma once

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep::testing {

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A lockstep process whose outputs go into files of `directory`. It does not outlive the test.
class Process {
 public:
  Process(const std::filesystem::path& directory, std::vector<std::string> arguments)
      : out_(directory / "stdout"), err_(directory / "stderr") {
    arguments.insert(arguments.begin(), LOCKSTEP_BINARY);
    std::vector<char*> argv;
    for (auto& argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    for (const auto& file : {out_, err_})
      std::filesystem::remove(file);  // what an earlier process said is not this one's
    pid_ = fork();
    LOCKSTEP_CHECK(pid_ >= 0, "cannot fork");
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed cannot end it
    redirect(out_, STDOUT_FILENO);
    redirect(err_, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    wait();
  }

  // The exit code; a signal that ended it counts 128 and its number.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Once standard error holds `text`. False when the process ends, or a minute passes, before.
  bool says(const std::string& text) const {
    for (int i = 0; i < 6000; ++i) {
      if (err().find(text) != std::string::npos) return true;
      if (waitid(P_PID, static_cast<id_t>(pid_), &ended_, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          ended_.si_pid == pid_)
        return err().find(text) != std::string::npos;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  std::string out() const { return read_all(out_); }
  std::string err() const { return read_all(err_); }

 private:
  static void redirect(const std::filesystem::path& file, int descriptor) {
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, descriptor);
  }

  std::filesystem::path out_, err_;
  pid_t pid_ = 0;
  mutable siginfo_t ended_{};
};

}  // namespace lockstep::testing
