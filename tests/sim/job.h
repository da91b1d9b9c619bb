// Job simulates the ranks of a job and their failure detection: each rank runs the real handshake
// and HeartbeatProtocol, rank 0's process also the real ControlProtocol, over a simulated network.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "dist/job/control_protocol.h"
#include "dist/job/heartbeat_protocol.h"
#include "tests/sim/net.h"

namespace lockstep::sim {

struct JobOptions {
  int hosts = 4;
  int slots = 2;  // ranks of a host
  Timing timing{};
  Timing server_timing{};  // of rank 0's control server
  Milliseconds start{60'000};
  int port = 29500;
  bool heeds_pauses = true;       // false: the server's requests to pause reading are ignored
  bool delivers_verdicts = true;  // false: a rank's last message is lost
};

class Job {
 public:
  // `host_of`: the host of each place. The ranks start within a second.
  Job(Kernel& kernel, Net& net, JobOptions options, std::vector<int> host_of);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int ranks() const { return options_.hosts * options_.slots; }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank / options_.slots)]; }
  void start_rank(int rank, Micros at);
  void start_all();

  // Faults.
  void kill(int rank);  // its process
  void pause(int rank, Micros duration);
  void stall(int rank);  // it sends beats, and makes no progress
  void block(int rank);  // its collectives do not finish: its network is cut
  void unblock(int rank);
  void power_off(int host);  // all its ranks
  void reject_start(int rank) { starts_.at(static_cast<std::size_t>(rank)) = false; }

  // A message from rank to rank, by rank 0's control server.
  void send(int from, int to, Bytes body);
  std::size_t received(int rank) const;  // bytes of messages

  // The state of the ranks.
  bool is_training() const { return training_ == ranks(); }
  bool is_alive(int rank) const;
  int alive() const { return alive_; }
  std::int64_t step() const;
  struct End {
    Micros at = -1;  // -1: it runs
    std::string why{};
    int exit_code = 0;
    bool is_own = false;  // its own conclusion
  };
  const End& end(int rank) const { return ends_.at(static_cast<std::size_t>(rank)); }
  const std::vector<Verdict>& verdicts() const { return verdicts_; }
  Micros verdict_at() const { return verdict_at_; }
  std::size_t queued_bytes() const;
  std::function<void(int rank)> on_end = [](int) {};

 private:
  class Rank;
  class Server;
  Rank& at(int rank) { return *ranks_.at(static_cast<std::size_t>(rank)); }
  const Rank& at(int rank) const { return *ranks_.at(static_cast<std::size_t>(rank)); }
  Activity activity_of(const Rank& rank) const;
  void set_blocking(Rank& rank, bool blocks);

  Kernel& kernel_;
  Net& net_;
  JobOptions options_;
  std::vector<int> host_of_;
  std::vector<HostClock> clocks_;  // by place
  Secret secret_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<Server> server_;
  std::vector<bool> starts_;
  std::vector<End> ends_;
  std::vector<Verdict> verdicts_;
  Micros verdict_at_ = -1;
  int training_ = 0, alive_ = 0;
  int blocking_ = 0;
  Micros began_ = -1, frozen_ = -1;  // when all ranks trained, and when one began to block
};

}  // namespace lockstep::sim
