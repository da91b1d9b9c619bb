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

class RankProcesses {
 public:
  //   command: the words after the program's name, "train", ...
  RankProcesses(std::vector<std::string> command, int slots, const SuperviseRecords& records,
                std::string host);

  // Finds ranks that an earlier agent of this host left. They cannot report how they end.
  Attempt adopt();
  // Throws TransientError if a process cannot be started; then none is left.
  void start(const Start& start);
  void stop(bool save);
  bool running() const { return !ranks_.empty(); }

  void add_to(std::vector<pollfd>& polled) const;
  // What ended since the last call; nullopt: nothing.
  std::optional<Ended> ended();

 private:
  struct Rank {
    int number = 0;
    pid_t pid = 0;
    bool is_child = true;
    Descriptor process;  // pidfd
    Descriptor socket;   // to the rank
    std::string heard{};
    RankReport report{};
  };
  void start_rank(const Start& start, int local);
  void read_reports(Rank& rank);
  void record() const;

  std::vector<std::string> command_;
  int slots_;
  const SuperviseRecords& records_;
  std::string host_;
  Attempt attempt_;
  std::vector<Rank> ranks_;
  bool killed_ = false;
  std::int64_t oom_kills_ = 0;
  KernelLog kernel_log_;
};

}  // namespace lockstep
