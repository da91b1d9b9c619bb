#include "launch/supervise/starter.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <set>
#include <sstream>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/descriptor.h"
#include "core/file.h"
#include "core/log.h"
#include "dist/job/supervise/causes.h"
#include "launch/supervise/spawn.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostHostsBytes = 16 << 20;
constexpr Milliseconds kStarterTick{100}, kFirstPause{1'000}, kLongestPause{30'000},
    kStarterEndTime{15'000};

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// The command line of a shell on another host.
std::string shell_line(const std::vector<std::string>& command) {
  // A killed agent is started again there: its ranks keep the connection of ssh open.
  // A host that boots may not have mounted the directory yet.
  auto line =
      str("cd ", quoted(std::filesystem::current_path().string()), " || exit 137; while :; do env");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto starts = [&](const char* name) { return text.starts_with(name); };
    const bool is_of_this_host =
        starts("LOCKSTEP_SECRET=") || starts("LOCKSTEP_SSH=") || starts("LOCKSTEP_HOSTNAME=");
    if ((starts("LOCKSTEP_") && !is_of_this_host) || starts("NCCL_") || starts("LD_LIBRARY_PATH="))
      line += " " + quoted(text);
  }
  line += " " + quoted(std::filesystem::read_symlink("/proc/self/exe").string());
  for (const auto& word : command)
    line += " " + quoted(word);
  return line + "; code=$?; [ $code = 137 ] || exit $code; sleep 1; done";
}

std::vector<std::string> ssh() {
  if (const char* given = std::getenv("LOCKSTEP_SSH"); given != nullptr && *given != '\0')
    return {given};
  return {"ssh", "-oBatchMode=yes", "-oServerAliveInterval=5", "-oServerAliveCountMax=3"};
}

class RemoteAgent {
 public:
  RemoteAgent(std::string host, const std::string& line) : host_(std::move(host)), line_(line) {}
  const std::string& host() const { return host_; }
  bool running() const { return pid_ > 0; }

  void start() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw TransientError(str("cannot make a pipe: ", reason(errno)));
    const Descriptor read_end(ends[0]);
    input_ = Descriptor(ends[1]);
    auto words = ssh();
    words.push_back(host_);
    words.push_back(line_);
    try {
      pid_ = spawn(words, {.input = read_end.number()});
    } catch (const TransientError& error) {
      throw ConfigError(
          str(error.what(), "; install an ssh client, or name another program in LOCKSTEP_SSH"));
    }
  }

  // The exit code, once; nullopt: it runs.
  std::optional<int> ended(Deadline now) {
    int status = 0;
    if (pid_ == 0 || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
    pid_ = 0;
    input_ = {};
    pause_ = std::min(2 * pause_, kLongestPause);
    again_ = now + pause_;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool is_due(Deadline now) const { return pid_ == 0 && now >= again_; }

  void stop() const {
    constexpr std::string_view kLine = "stop\n";
    if (input_) [[maybe_unused]]
      const auto written = write(input_.number(), kLine.data(), kLine.size());
  }
  void kill_ssh() const {
    if (pid_ > 0) kill(-pid_, SIGKILL);
  }

 private:
  std::string host_;
  const std::string& line_;
  pid_t pid_ = 0;
  Descriptor input_;
  Milliseconds pause_ = kFirstPause / 2;
  Deadline again_{};
};

// Whether the agent or its host died, or the host has no access to storage: the exit code of ssh,
// or of the shell that it starts. A run does not end with these codes.
bool is_death(int exit_code) {
  constexpr int kStopped = 130;  // by `lockstep ctl RUN stop`
  return (exit_code >= 126 && exit_code != kStopped) || exit_code == kStorage;
}

}  // namespace

HostList read_hosts(const std::filesystem::path& file) {
  HostList list;
  std::set<std::string> seen;
  std::istringstream lines(read_text(file, kMostHostsBytes));
  int number = 0;
  const auto fail = [&](const std::string& what) {
    throw ConfigError(str(file.string(), ", line ", number, ": ", what));
  };
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, word;
    if (!(words >> host)) continue;
    if (!seen.insert(host).second) fail(str("the host ", host, " occurs twice"));
    int slots = 0;
    while (words >> word) {
      constexpr std::string_view kSlots = "slots=";
      if (!word.starts_with(kSlots)) fail(str("expected slots=N, found ", word));
      const auto* end = word.data() + word.size();
      const auto parsed = std::from_chars(word.data() + kSlots.size(), end, slots);
      if (parsed.ec != std::errc() || parsed.ptr != end || slots < 1)
        fail(str("expected slots=N, found ", word));
    }
    if (!list.hosts.empty() && slots != list.slots)
      fail("hosts of a supervised run need the same number of slots");
    list.slots = slots;
    list.hosts.push_back(host);
  }
  if (list.hosts.empty()) throw ConfigError(str(file.string(), ": the file names no host"));
  return list;
}

int start_agents(const std::vector<std::string>& hosts, const std::vector<std::string>& command) {
  const auto line = shell_line(command);
  sigset_t set;
  sigemptyset(&set);
  for (const int one : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGCHLD})
    sigaddset(&set, one);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const Descriptor signals(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));

  allow_open_files(hosts.size());
  std::vector<RemoteAgent> remotes;
  for (const auto& host : hosts)
    remotes.emplace_back(host, line);
  std::optional<int> code;  // of the run
  bool is_stopping = false;
  auto end = Deadline::max();
  while (Clock::now() < end) {
    bool any = false;
    for (auto& remote : remotes) {
      const auto now = Clock::now();
      if (!code && !is_stopping && remote.is_due(now)) remote.start();
      if (const auto ended = remote.ended(now)) {
        if (!is_death(*ended) && !code) {
          code = ended;
          end = now + kStarterEndTime;
        } else if (is_death(*ended) && !code) {
          log_line(LogLevel::warning,
                   str("supervise: the agent on host ", remote.host(), " ended with code ", *ended,
                       is_stopping ? "" : "; starting another"));
        }
      }
      any = any || remote.running();
    }
    if (!any && (code || is_stopping)) break;
    pollfd polled{.fd = signals.number(), .events = POLLIN, .revents = 0};
    poll(&polled, 1, static_cast<int>(kStarterTick.count()));
    signalfd_siginfo info{};
    while (read(signals.number(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) {
        is_stopping = true;
        for (const auto& remote : remotes)
          remote.stop();
      }
  }
  for (const auto& remote : remotes)
    remote.kill_ssh();
  return code.value_or(TransientError("").exit_code());
}

}  // namespace lockstep
