// RankProcesses: the ranks of one attempt on this host, as child processes.
#pragma once

#include <map>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/descriptor.h"
#include "dist/job/agent_socket.h"
#include "dist/job/supervise/messages.h"
#include "launch/supervise/records.h"

namespace lockstep {

// KernelLog reads errors of GPUs from the kernel's log, from its creation on. Without permission it
// finds none.
class KernelLog {
 public:
  KernelLog();
  std::vector<int> xids();  // new ones

 private:
  Descriptor file_;
};

// One process of this program that an agent starts as a rank.
struct RankProcess {
  RankProcess() = default;
  // Starts it. Throws TransientError if that is not possible.
  //   command: the words after the program's name, "train", ...
  //   log: whether its standard error is that of this process, or is not shown
  enum class Log : std::uint8_t { shown, hidden };
  RankProcess(const std::vector<std::string>& command, const AgentPlace& place, Log log);

  bool has_ended() const;
  // After it has ended: its exit code, or 128 + n after signal n. Kills the children that it left.
  int reap();
  void read_reports();  // into `report`

  int number = 0;
  pid_t pid = 0;
  bool is_child = true;
  Descriptor process{};  // pidfd
  Descriptor socket{};   // to the rank
  RankReport report{};

 private:
  std::string heard_{};
};

// Runs `lockstep preflight --quick` on the ranks of this host. Returns the fault that it found, or
// "". Kills it after `most`, which is a fault too.
std::string check_ranks(int slots, const std::vector<std::string>& flags, Milliseconds most);

class RankProcesses {
 public:
  //   command: the words after the program's name, "train", ...
  //   run: its directory
  RankProcesses(std::vector<std::string> command, int slots, const std::filesystem::path& run);

  // Finds ranks that an earlier agent of this host left. They cannot report how they end.
  HostPlace adopt();
  // Throws TransientError if a process cannot be started; then none is left.
  //   secret: of the attempt
  void start(const Start& start, const Secret& secret);
  void stop(bool save);
  bool running() const { return !ranks_.empty(); }

  void add_to(std::vector<pollfd>& polled) const;
  // Hosts of stragglers that ranks reported since the last call.
  std::vector<std::string> slow();
  // Ranks that ended since the last call; nullopt: none.
  std::optional<Ended> ended();

 private:
  void record() const;

  std::vector<std::string> command_;
  int slots_;
  std::filesystem::path file_;  // names the ranks, for the next agent of this host
  HostPlace place_;
  std::vector<RankProcess> ranks_;
  bool killed_ = false, saves_ = false;
  std::int64_t oom_kills_ = 0;
  KernelLog kernel_log_;
};

}  // namespace lockstep
