// BadServer: tests/data/bad_server.py on a port of its own, over a directory. It starts when its
// address is first asked for, and ends with the test.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <regex>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <typeinfo>
#include <unistd.h>
#include <vector>

#include "core/json.h"
#include "data/remote/remote.h"
#include "tests/wording.h"

namespace lockstep::testing {

// Tries again at once, and does not give up because this machine is loaded.
inline Patience quick_patience() {
  return {{60'000, 60}, 0.01, 0.05, 120};
}
// Where a stall is the test.
inline Patience little_patience() {
  return {{60'000, 2}, 0.01, 0.05, 120};
}
// Where giving up is the test.
inline Patience no_patience(double give_up_seconds = 0.2) {
  return {{60'000, 60}, 0.01, 0.05, give_up_seconds};
}

// No credentials: /dev/null holds no files.
inline Environment no_environment() {
  return {{"HOME", "/dev/null"}, {"AWS_EC2_METADATA_DISABLED", "true"}};
}

// As expect_refusal, of exactly this type, and without how often and how long it was tried: that
// differs between runs.
template <class E, class Act>
void expect_remote_refusal(const std::string& reader, const std::string& name,
                           std::initializer_list<std::string> pins, const Act& act) {
  static const std::regex tries(R"([0-9]+ attempts(, .* without progress)?)");
  expect_refusal<E>(reader, name, pins, [&] {
    try {
      act();
    } catch (const E& error) {
      EXPECT_EQ(typeid(error), typeid(E));
      throw E(std::regex_replace(error.what(), tries, "N attempts"));
    }
  });
}

class BadServer {
 public:
  explicit BadServer(const std::filesystem::path& directory, std::vector<std::string> keys = {})
      : words_{LOCKSTEP_PYTHON, "-I", "-S", "-B", LOCKSTEP_BAD_SERVER, directory.string()} {
    words_.insert(words_.end(), keys.begin(), keys.end());
    setenv("no_proxy", "127.0.0.1", 1);  // else a proxy of this machine's environment is asked
  }
  BadServer(const BadServer&) = delete;
  BadServer& operator=(const BadServer&) = delete;
  ~BadServer() { end(); }

  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  std::string host() const {
    std::call_once(started_, [&] { start(); });
    return str("http://127.0.0.1:", port_);
  }
  std::string url(const std::string& path) const { return host() + '/' + path; }

  std::string get(const std::string& path) const {
    Remote remote(no_environment(), quick_patience());
    const std::atomic<bool> stop = false;
    return RemoteReader(remote, stop).read_all(url(path), 1 << 20);
  }
  int requests(const std::string& path) const { return std::stoi(get("_requests/" + path)); }
  // What was asked for, in the order in which it was.
  std::vector<ByteRange> ranges(const std::string& path) const {
    std::vector<ByteRange> found;
    const auto list = Json::parse(get("_ranges/" + path), "ranges");
    for (const auto& range : list.as_array()) {
      long long first = 0, last = -1;
      std::sscanf(range.as_string().c_str(), "bytes=%lld-%lld", &first, &last);
      found.push_back({first, last + 1});
    }
    return found;
  }

 private:
  void start() const {
    std::array<int, 2> ends{};
    LOCKSTEP_CHECK(pipe(ends.data()) == 0, "no pipe");
    std::vector<char*> argv;
    for (auto& word : words_)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    LOCKSTEP_CHECK(pid_ >= 0, "cannot fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    std::FILE* out = fdopen(ends[0], "r");
    LOCKSTEP_CHECK(std::fscanf(out, "%d", &port_) == 1, "the server did not start");
    std::fclose(out);
  }

  mutable std::vector<std::string> words_;
  mutable std::once_flag started_;
  mutable pid_t pid_ = 0;
  mutable int port_ = 0;
};

// Until `done`, for two minutes at most.
template <class Done>
void wait_until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!done()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// Bytes that differ everywhere.
inline std::string noise(std::size_t count, std::uint64_t seed = 1) {
  std::string bytes(count, '\0');
  std::uint64_t word = seed * 0x9e3779b97f4a7c15;
  for (auto& byte : bytes) {
    word = word * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<char>(word >> 56);
  }
  return bytes;
}

}  // namespace lockstep::testing
