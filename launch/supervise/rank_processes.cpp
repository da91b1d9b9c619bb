#include "launch/supervise/rank_processes.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/system/machine.h"
#include "dist/job/frame.h"
#include "dist/job/supervise/causes.h"
#include "launch/supervise/spawn.h"

namespace lockstep {
namespace {

constexpr int kSocketOfRank = 3;
constexpr std::int64_t kMostRanksBytes = 1 << 20;
constexpr std::size_t kMostReportBytes = 64 << 10;

Descriptor open_process(pid_t pid) {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// When the process started, in the kernel's ticks after boot; "": there is no such process.
std::string start_time(pid_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const auto name = text.rfind(')');
  if (name == std::string::npos) return "";
  std::istringstream rest(text.substr(name + 1));
  std::string word;
  for (int field = 3; field <= 22; ++field)
    rest >> word;
  return word;
}

// In memory of this host, because a shared file system may hang, and a host that boots has no
// ranks.
std::filesystem::path file_of_ranks(const std::filesystem::path& run) {
  const auto name = std::filesystem::absolute(run).lexically_normal().string();
  return str("/dev/shm/lockstep-", getuid(), "-", hash_hex(as_bytes(name)), ".json");
}

bool is_own_file(const std::filesystem::path& file) {
  struct stat status {};
  return lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == getuid();
}

// Processes of this host that the kernel killed because memory was short.
std::int64_t oom_kills() {
  std::ifstream file("/proc/vmstat");
  std::int64_t number = 0;
  for (std::string name; file >> name >> number;)
    if (name == "oom_kill") return number;
  return 0;
}

}  // namespace

KernelLog::KernelLog() : file_(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (file_) lseek(file_.number(), 0, SEEK_END);
}

std::vector<int> KernelLog::xids() {
  std::vector<int> found;
  std::array<char, 8192> line;
  while (file_) {
    const auto count = ::read(file_.number(), line.data(), line.size());
    if (count < 0 && errno == EPIPE) continue;  // lines were overwritten
    if (count <= 0) break;
    if (const int xid = xid_of({line.data(), static_cast<std::size_t>(count)}); xid != 0)
      found.push_back(xid);
  }
  return found;
}

RankProcess::RankProcess(const std::vector<std::string>& command, const AgentPlace& place, Log log)
    : number(place.rank) {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    throw TransientError(str("cannot make a socket: ", reason(errno)));
  Descriptor ours(pair[0]);
  const Descriptor theirs(pair[1]);
  const auto line = place.dump() + "\n";
  if (send(ours.number(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size()))
    throw TransientError(str("cannot write to a socket: ", reason(errno)));

  std::vector<std::string> words{"/proc/self/exe"};
  words.insert(words.end(), command.begin(), command.end());
  pid = spawn(words, {.variables = {str("LOCKSTEP_AGENT=", kSocketOfRank)},
                      .passed = {theirs.number(), kSocketOfRank},
                      .hides_errors = log == Log::hidden});
  process = open_process(pid);
  if (!process) {
    const int failure = errno;
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    throw TransientError(str("cannot watch rank ", number, ": ", reason(failure)));
  }
  socket = std::move(ours);
}

bool RankProcess::has_ended() const {
  pollfd polled{.fd = process.number(), .events = POLLIN, .revents = 0};
  return poll(&polled, 1, 0) == 1;
}

int RankProcess::reap() {
  int status = 0, code = TransientError("").exit_code();
  if (is_child && waitpid(pid, &status, 0) == pid)
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  kill(-pid, SIGKILL);
  return code;
}

void RankProcess::read_reports() {
  std::array<char, 4096> bytes;
  while (socket) {
    const auto count = recv(socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count <= 0) break;
    heard_.append(bytes.data(), static_cast<std::size_t>(count));
    if (heard_.size() > kMostReportBytes) heard_.clear();
  }
  for (auto end = heard_.find('\n'); end != std::string::npos; end = heard_.find('\n')) {
    try {
      const auto said = RankReport::parse(heard_.substr(0, end));
      if (!said.error.empty()) report.error = said.error;
      if (!said.lost.empty()) report.lost = said.lost;
      if (!said.faulty.empty()) report.faulty = said.faulty;
      if (!said.slow.empty()) report.slow = said.slow;
      if (said.step > 0) {
        report.step = said.step;
        report.samples = said.samples;
      }
      report.is_verdict = report.is_verdict || said.is_verdict;
      report.is_common = report.is_common || said.is_common;
    } catch (const DataError& error) {
      log_own_warning(error.what());
    }
    heard_.erase(0, end + 1);
  }
}

std::string check_ranks(int slots, const std::vector<std::string>& flags, Milliseconds most) {
  std::vector<std::string> command{"preflight", "--quick"};
  command.insert(command.end(), flags.begin(), flags.end());
  const auto port = listen_at("", 0).port();
  const auto secret = Secret::draw().hex();
  const auto deadline = Clock::now() + most;
  std::vector<RankProcess> ranks;
  struct KillAll {
    ~KillAll() {
      for (auto& rank : ranks)
        if (!rank.has_ended()) kill(-rank.pid, SIGKILL);
    }
    std::vector<RankProcess>& ranks;
  } const kill_all{ranks};
  for (int rank = 0; rank < slots; ++rank)
    ranks.emplace_back(command,
                       AgentPlace{.rank = rank,
                                  .ranks = slots,
                                  .local_rank = rank,
                                  .addresses = {"127.0.0.1"},
                                  .port = port,
                                  .secret = secret},
                       RankProcess::Log::hidden);
  std::string fault;
  for (auto& rank : ranks) {
    while (!rank.has_ended() && Clock::now() < deadline)
      std::this_thread::sleep_for(Milliseconds(20));
    if (!rank.has_ended()) {
      kill(-rank.pid, SIGKILL);
      fault = str("its check took more than ", seconds_text(most));
      while (!rank.has_ended() && Clock::now() < deadline + most)
        std::this_thread::sleep_for(Milliseconds(20));
      if (!rank.has_ended()) return "a process of its check cannot be killed";
    }
    rank.read_reports();
    if (const int code = rank.reap(); code != 0 && fault.empty())
      fault =
          rank.report.error.empty() ? str("its check ended with code ", code) : rank.report.error;
  }
  return fault;
}

RankProcesses::RankProcesses(std::vector<std::string> command, int slots,
                             const std::filesystem::path& run)
    : command_(std::move(command)), slots_(slots), file_(file_of_ranks(run)) {}

HostPlace RankProcesses::adopt() {
  try {
    if (!is_own_file(file_)) return {};
    const Json json = Json::parse(read_text(file_, kMostRanksBytes), file_.string());
    if (text_at(json, "boot") != machine_id()) return {};
    const auto place = host_place(json.at("place"));
    for (const auto& rank : json.at("ranks").as_array()) {
      const auto pid = static_cast<pid_t>(rank.at("pid").as_integer());
      auto process = open_process(pid);
      if (!process || start_time(pid) != text_at(rank, "started")) continue;
      auto& adopted = ranks_.emplace_back();
      adopted.number = static_cast<int>(rank.at("rank").as_integer());
      adopted.pid = pid;
      adopted.is_child = false;
      adopted.process = std::move(process);
    }
    if (ranks_.empty()) return {};
    place_ = place;
    return place;
  } catch (const Error& error) {
    log_own_warning(error.what(), "; ranks of an earlier agent are not taken over");
    ranks_.clear();
    return {};
  }
}

// Written for the next agent of this host, which may start after this one was killed.
void RankProcesses::record() const {
  Json::Array ranks;
  for (const auto& rank : ranks_)
    ranks.push_back(Json::Object{
        {"rank", rank.number}, {"pid", std::int64_t{rank.pid}}, {"started", start_time(rank.pid)}});
  if (path_exists(file_) && !is_own_file(file_))
    throw ConfigError(str(file_.string(), ": the file belongs to another user; remove it"));
  write_text(file_, Json(Json::Object{{"boot", machine_id()},
                                      {"place", to_json(place_)},
                                      {"ranks", std::move(ranks)}})
                        .dump());
}

void RankProcesses::start(const Start& start, const Secret& secret) {
  place_ = start.place;
  killed_ = saves_ = false;
  oom_kills_ = oom_kills();
  kernel_log_.xids();  // earlier errors belong to earlier attempts
  auto command = command_;
  if (start.skip_step > 0) {
    command.emplace_back("--skip-steps");
    command.push_back(str(start.skip_step, "..", start.skip_step));
  }
  try {
    for (int local = 0; local < slots_; ++local)
      ranks_.emplace_back(command,
                          AgentPlace{.rank = place_.number * slots_ + local,
                                     .ranks = place_.hosts * slots_,
                                     .local_rank = local,
                                     .addresses = start.addresses,
                                     .port = start.port,
                                     .secret = secret.hex(),
                                     .takes_over = start.takes_over,
                                     .restart = start.restart,
                                     .noted_step = start.noted_step},
                          RankProcess::Log::shown);
    record();
  } catch (const Error&) {
    stop(/*save=*/false);
    throw;
  }
}

void RankProcesses::stop(bool save) {
  if (save && std::exchange(saves_, true)) return;  // a second signal would end them at once
  killed_ = killed_ || !save;
  for (const auto& rank : ranks_) {
    if (save)
      kill(rank.pid, SIGUSR1);
    else
      kill(-rank.pid, SIGKILL);  // with its own children
  }
}

void RankProcesses::add_to(std::vector<pollfd>& polled) const {
  for (const auto& rank : ranks_)
    polled.push_back({.fd = rank.process.number(), .events = POLLIN, .revents = 0});
}

std::vector<std::string> RankProcesses::slow() {
  std::vector<std::string> hosts;
  for (auto& rank : ranks_) {
    rank.read_reports();
    hosts.insert(hosts.end(), rank.report.slow.begin(), rank.report.slow.end());
    rank.report.slow.clear();
  }
  return hosts;
}

std::optional<Ended> RankProcesses::ended() {
  Ended ended{.attempt = place_.attempt};
  bool any = false;
  for (auto rank = ranks_.begin(); rank != ranks_.end();) {
    if (!rank->has_ended()) {
      ++rank;
      continue;
    }
    any = true;
    rank->read_reports();
    RankEnd end{.rank = rank->number,
                .exit_code = rank->reap(),
                .unwatched = !rank->is_child,
                .error = rank->is_child ? rank->report.error : "it ended while no agent watched it",
                .lost = rank->report.lost,
                .faulty = rank->report.faulty,
                .step = rank->report.step,
                .samples = rank->report.samples,
                .is_verdict = rank->report.is_verdict,
                .is_common = rank->report.is_common};
    end.out_of_memory = end.exit_code == 128 + SIGKILL && oom_kills() > oom_kills_;
    if (!killed_) ended.ranks.push_back(std::move(end));
    rank = ranks_.erase(rank);
  }
  if (!any) return std::nullopt;
  ended.xids = kernel_log_.xids();
  ended.all = ranks_.empty();
  if (ended.all) {
    std::error_code unknown;
    std::filesystem::remove(file_, unknown);
  }
  return ended;
}

}  // namespace lockstep
