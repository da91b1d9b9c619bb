// Runs the binary as a user does: it takes arguments, and returns the exit code and both outputs.
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

// Process is a lockstep process with its outputs in files of `directory`. It ends with the test.
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
      std::filesystem::remove(file);  // the output of an earlier process
    pid_ = fork();
    LOCKSTEP_CHECK(pid_ >= 0, "cannot fork");
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed test cannot run its destructor
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

  // The exit code; after a signal, 128 plus its number.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Waits until standard error holds `text`. False if the process ends, or a minute passes, before.
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
